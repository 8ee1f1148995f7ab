#include "heddle/runtime/expected_rows.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "heddle/base/error.h"
#include "heddle/comm/placement/relay.h"
#include "heddle/comm/placement/replica_kernels.h"
#include "heddle/runtime/dry_run.h"

namespace heddle::runtime {

namespace {

using ir::Topology;

// The layers that choose experts, with how many there are to choose from.
std::map<int, int64_t> expert_layers(const ir::StepProgram& program) {
  std::map<int, int64_t> layers;
  for (const ir::Listing& listing : program.listings) {
    for (const ir::Op& op : listing.ops) {
      if (op.def->chooses_experts) layers[op.layer] = listing.value(op.result("offsets")).shape[0].count - 1;
    }
  }
  return layers;
}

}  // namespace

ExpertShares drawn_shares(const ir::StepProgram& program, const cost::Routing& routing, uint64_t seed) {
  ExpertShares shares;
  for (const auto& [layer, experts] : expert_layers(program)) {
    shares[layer] = routing.shares(experts, RandomKey(seed).with("routing").with(static_cast<uint64_t>(layer)));
  }
  return shares;
}

ExpertShares counted_shares(const ir::StepProgram& program, const std::vector<std::vector<double>>& rows_LE,
                            const std::string& from) {
  const std::map<int, int64_t> layers = expert_layers(program);
  if (rows_LE.size() != layers.size())
    config_error("{} has the rows of {} MoE layers, the configuration has {}", from, rows_LE.size(), layers.size());
  ExpertShares shares;
  auto row = rows_LE.begin();
  for (const auto& [layer, experts] : layers) {
    if (std::ssize(*row) != experts)
      config_error("{} has the rows of {} experts in layer {}, the configuration has {}", from, row->size(), layer,
                   experts);
    double sum = 0;
    for (const double rows : *row) {
      if (!std::isfinite(rows) || rows < 0)
        config_error("{} says that an expert of layer {} has {} rows", from, layer, rows);
      sum += rows;
    }
    std::vector<double>& of = shares[layer];
    for (const double rows : *row) of.push_back(sum > 0 ? rows / sum * static_cast<double>(experts) : 1);
    ++row;
  }
  return shares;
}

ExpectedRows::ExpectedRows(const model::ModelConfig& config, const plan::Plan& plan, const ir::StepProgram& program,
                           const std::vector<int>& node_of, bool apart, ExpertShares shares)
    : program_(program),
      groups_(config.n_group),
      chosen_groups_(config.topk_group),
      shares_(std::move(shares)),
      node_of_(node_of) {
  const plan::Mesh mesh(plan.mesh);
  const auto ranks = static_cast<size_t>(plan.ranks());
  if (node_of_.empty()) {
    node_of_.assign(ranks, 0);
    if (apart) std::iota(node_of_.begin(), node_of_.end(), 0);
  }
  HEDDLE_CHECK(node_of_.size() == ranks, "{} of {} ranks have a node", node_of_.size(), ranks);
  position_.assign(ranks, -1);
  pattern_.assign(ranks, 0);
  std::map<std::vector<int>, int> patterns;
  for (size_t r = 0; r < ranks; ++r) {
    if (position_[r] >= 0) continue;
    const std::vector<int> group = mesh.group("experts", static_cast<int>(r));
    std::vector<int> nodes;
    for (const int member : group) nodes.push_back(node_of_[member]);
    nodes = comm::Places(0, nodes).node;  // numbered within the group
    const auto [at, fresh] = patterns.try_emplace(nodes, static_cast<int>(patterns.size()));
    if (fresh) nodes_of_pattern_.push_back(nodes);
    for (size_t i = 0; i < group.size(); ++i) {
      position_[group[i]] = static_cast<int>(i);
      pattern_[group[i]] = at->second;
    }
  }
}

ExpectedExchange ExpectedRows::expect(const Key& key, const ir::Op& op, const ir::Op* placing) const {
  const ir::Attributes& a = op.attributes;
  const int64_t ranks = a.integer("ranks"), slices = a.integer("slices"), experts = a.integer("experts");
  const int64_t each = experts / (ranks / slices);
  const std::vector<int>& nodes = nodes_of_pattern_[key.pattern];
  HEDDLE_CHECK(std::ssize(nodes) == ranks, "an exchange among {} ranks in a group of {}", ranks, nodes.size());
  ExpectedExchange e;
  e.places = comm::Places(0, nodes);
  e.tokens = key.tokens;
  e.chosen = key.chosen;
  e.counts = comm::SourceCounts<double>(ranks, e.places.nodes());
  const auto at = shares_.find(key.layer);
  const auto share = [&](int64_t expert) { return at == shares_.end() ? 1.0 : at->second[expert]; };
  const int64_t choices = experts + a.integer_or("without", 0);
  const cost::Choice choice{choices, key.chosen, groups_, chosen_groups_};
  // The sum of the shares on each holder of experts, and the router's groups that experts of some holders are in.
  std::vector<double> of_holder;
  for (int64_t h = 0; h < ranks / slices; ++h) {
    double m = 0;
    for (int64_t i = h * each; i < (h + 1) * each; ++i) m += share(i);
    of_holder.push_back(m);
  }
  if (placing != nullptr && placing->attributes.integer("copies") > 0) {  // all sources alike
    std::vector<double> share_E;
    for (int64_t i = 0; i < experts; ++i) share_E.push_back(share(i));
    const std::vector<int32_t> rows = comm::alike_sources(share_E, ranks, key.tokens * key.chosen);
    const comm::Loads loads{ranks, experts, rows};
    const comm::Holders holders{slices, placing->attributes.integer("copies"), e.places.node};
    const comm::Placement placement =
        comm::choose_placement(loads, holders, comm::placement_rules(placing->attributes));
    const std::vector<int64_t> held = placement.rows_of(loads);
    const auto all = static_cast<double>(std::accumulate(held.begin(), held.end(), int64_t{0}));
    for (size_t h = 0; h < held.size() && all > 0; ++h)
      of_holder[h] = static_cast<double>(held[h]) / all * static_cast<double>(experts);
    for (const comm::Placement::Replica& replica : placement.replicas()) {
      for (int64_t s = 0; s < slices; ++s) {
        e.replicas.push_back({static_cast<int>(placement.owner(replica.expert) * slices + s),
                              static_cast<int>(replica.holder * slices + s)});
      }
    }
    for (const comm::Handover& h : comm::handovers(placement.expert_of_slot(), holders)) {
      for (int64_t s = 0; s < slices; ++s) {
        e.handovers.push_back({static_cast<int>(h.from * slices + s), static_cast<int>(h.to * slices + s),
                               1.0 / static_cast<double>(h.parts), h.relayed});
      }
    }
  }
  const auto groups_in = [&](const std::set<int64_t>& holders) {
    std::set<int64_t> in;
    const int64_t in_group = std::max<int64_t>(1, experts / std::max<int64_t>(1, groups_));
    for (const int64_t h : holders) {
      for (int64_t i = h * each; i < (h + 1) * each; ++i) in.insert(i / in_group);
    }
    return static_cast<int64_t>(in.size());
  };
  const auto tokens = static_cast<double>(key.tokens);
  std::vector<double> numbers{tokens}, tokens_on, tokens_on_node, alone_on, alone_on_node;
  for (int64_t r = 0; r < ranks; ++r) {
    const double m = of_holder[r / slices];
    const int64_t in = groups_in({r / slices});
    const double any = 1 - choice.none(m, in);
    numbers.push_back(tokens * static_cast<double>(key.chosen) * m / static_cast<double>(choices));
    tokens_on.push_back(tokens * any);
    alone_on.push_back(tokens * std::min(any, choice.one(m, in)));
  }
  for (const std::vector<int>& members : e.places.members) {
    std::map<int64_t, int> slices_here;
    for (const int r : members) ++slices_here[r / slices];
    std::set<int64_t> holders;
    double m = 0, single = 0;  // single: of holders with one slice here, whose row has no other beside it
    for (const auto& [holder, count] : slices_here) {
      holders.insert(holder);
      m += of_holder[holder];
      if (count == 1) single += of_holder[holder];
    }
    const int64_t in = groups_in(holders);
    const double any = 1 - choice.none(m, in);
    tokens_on_node.push_back(tokens * any);
    alone_on_node.push_back(m > 0 ? tokens * std::min(any, choice.one(m, in)) * single / m : 0);
  }
  for (const auto* more : {&tokens_on, &tokens_on_node, &alone_on, &alone_on_node})
    numbers.insert(numbers.end(), more->begin(), more->end());
  for (int64_t p = 0; p < ranks; ++p) std::copy(numbers.begin(), numbers.end(), e.counts.of(p));

  const std::optional<Topology> named = comm::topology_named(key.topology, e.places);
  e.topology = named ? *named : comm::cheapest(e.counts, e.places, comm::rates_of(a));
  e.hops = comm::hops_of(e.topology, e.counts, e.places, static_cast<double>(key.row_bytes),
                         static_cast<double>(key.sum_bytes));
  const bool passes = e.topology == Topology::node || e.topology == Topology::merge;
  for (int64_t r = 0; r < ranks; ++r) {
    double received = 0, passing = 0, forwarded = 0;
    for (int64_t p = 0; p < ranks; ++p) received += e.counts.rows(p, r);
    if (passes) {
      for (const int s : e.places.sources_of(static_cast<int>(r))) {
        passing += e.counts.tokens(s);
        for (const int member : e.places.members[e.places.node[r]]) forwarded += e.counts.tokens_on(s, member);
      }
      if (e.topology == Topology::merge)  // as the route has it: room for what comes home
        forwarded = std::max(forwarded, static_cast<double>(e.places.nodes()) * e.counts.tokens(r));
    }
    e.rows.push_back({std::llround(received), std::llround(passing), std::llround(forwarded)});
  }
  return e;
}

const ExpectedExchange& ExpectedRows::of(int rank, const ir::Listing& listing, const ir::Op& op) {
  const ir::Shape& chosen = listing.value(op.operand("experts")).shape;
  Key key{};
  key.pattern = pattern(rank);
  key.layer = shares_.contains(op.layer) ? op.layer : -1;
  key.tokens = chosen[0].count;
  key.chosen = chosen[1].count;
  if (ir::is_exchange(op.def->moves)) {
    const ir::Value& x = listing.value(op.operand("rows"));
    key.row_bytes = x.shape.back().count * size_of(x.dtype);
    key.sum_bytes = x.shape.back().count * (x.dtype == Dtype::f64 ? 8 : 4);
  }
  key.topology = op.attributes.word("topology");
  const auto at = known_.find(key);
  if (at != known_.end()) return at->second;
  const ir::Op* placing = nullptr;
  for (const ir::Op& other : listing.ops) {
    if (ir::place_of("slots", other.def->results) >= 0 && other.result("slots") == op.operand("experts"))
      placing = &other;
  }
  if (placing != nullptr && ir::place_of("placement", placing->def->operands) >= 0) {  // chosen ahead
    const ir::ValueId placement = placing->operand("placement");
    for (const ir::Op& other : listing.ops) {
      if (ir::place_of("placement", other.def->results) >= 0 && other.result("placement") == placement)
        placing = &other;
    }
  }
  return known_.emplace(key, expect(key, op, placing)).first->second;
}

const ExpectedExchange& ExpectedRows::of_copies(int rank, const ir::Listing& listing, const ir::Op& op) {
  const ir::ValueId placement = op.operand("placement");
  for (const ir::Op& other : listing.ops) {
    if (other.def->moves == ir::Moves::counts && other.operand("placement") == placement)
      return of(rank, listing, other);
    const bool knows = other.def->host_stall || other.def->room != nullptr;
    if (knows && std::find(other.out.begin(), other.out.end(), placement) != other.out.end())
      return of(rank, listing, shared_counts_of(listing, other));
  }
  internal_error("'{}' moves replicas that no counts know", op.kind());
}

int64_t ExpectedRows::read(int rank, const ir::Issue& issue, size_t output) {
  if (output == 3) return 0;
  const ir::Listing& listing = program_.listings[issue.listing];
  const ExpectedExchange& e = of(rank, listing, shared_counts_of(listing, *issue.op));
  if (output < 3) return e.rows[position(rank)][output];
  int64_t most = 0;
  for (const auto& rows : e.rows) most = std::max(most, rows[0]);
  return most;
}

std::vector<int> ExpectedRows::alike() {
  std::map<std::vector<int64_t>, int> numbers;
  std::map<std::tuple<int, int, int>, int> known;  // class, pattern, position
  std::vector<int> alike;
  for (size_t r = 0; r < position_.size(); ++r) {
    const int rank = static_cast<int>(r);
    const auto [at, fresh] = known.try_emplace({program_.class_of_rank[r], pattern(rank), position(rank)}, 0);
    if (fresh) {
      std::vector<int64_t> seen;
      for (const int s : program_.listings_of(rank)) {
        const ir::Listing& listing = program_.listings[s];
        for (const ir::Op& op : listing.ops) {
          const ir::Moves moves = op.def->moves;
          if (op.phase != ir::Phase::F || (moves != ir::Moves::counts && moves != ir::Moves::to_experts)) continue;
          const ExpectedExchange& e = of(rank, listing, op);
          const auto own = static_cast<size_t>(position(rank));
          seen.insert(seen.end(), e.rows[own].begin(), e.rows[own].end());
          for (const std::vector<comm::Hop>* way : {&e.hops.dispatch, &e.hops.combine}) {
            for (const comm::Hop& hop : *way) {
              const comm::Hop::Of& b = hop.of[own];
              for (const double bytes : {b.within_out, b.within_in, b.across_out, b.across_in})
                seen.push_back(std::llround(bytes));
            }
          }
        }
      }
      at->second = numbers.try_emplace(seen, static_cast<int>(numbers.size())).first->second;
    }
    alike.push_back(at->second);
  }
  return alike;
}

}  // namespace heddle::runtime
