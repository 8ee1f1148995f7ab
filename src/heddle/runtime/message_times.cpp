#include "heddle/runtime/message_times.h"

#include <algorithm>

#include "heddle/base/error.h"

namespace heddle::runtime {

namespace {

void operator+=(MessageTime& sum, const MessageTime& more) {
  sum.us += more.us;
  sum.link.out_us += more.link.out_us;
  sum.link.in_us += more.link.in_us;
}

// The first exchange of a layer also sends what the others find their rows by.
bool makes_lists(const ir::Op& op) { return ir::place_of("passing", op.def->results) >= 0; }

}  // namespace

Messages::Messages(const plan::Mesh& mesh, const cost::MachineProfile& profile, cost::Link over, ExpectedRows& rows,
                   int cards)
    : mesh_(mesh), profile_(profile), over_(over), rows_(rows), cards_(cards) {
  if (over != cost::Link::nodes) {
    within_ = over;
  } else if (std::any_of(profile.links.begin(), profile.links.end(),
                         [](const cost::LinkTime& t) { return t.over == cost::Link::node; })) {
    within_ = cost::Link::node;
  }
}

const std::vector<int>& Messages::group_of(const std::string& name, int rank) {
  const auto at = groups_.find({name, rank});
  if (at != groups_.end()) return at->second;
  return groups_.emplace(std::pair{name, rank}, mesh_.group(name, rank)).first->second;
}

double Messages::within_us(int ranks, double bytes) const {
  return cost::message_us(profile_, within_, std::max(2, ranks), bytes);
}

MessageTime Messages::hop(const comm::Hop& hop, const comm::Places& places, int position) {
  MessageTime time;
  const int ranks = static_cast<int>(places.node.size());
  if (!hosts()) {  // one link for all
    double most = 0;
    for (const comm::Hop::Of& of : hop.of)
      most = std::max({most, of.within_out + of.across_out, of.within_in + of.across_in});
    time.us = most > 0 ? within_us(ranks, most) : 0;
    return time;
  }
  const double across = hop.most_across(places), within = hop.most_within();
  size_t neighbours = 1;
  for (const std::vector<int>& members : places.members) neighbours = std::max(neighbours, members.size());
  if (within > 0) time.us = within_us(static_cast<int>(neighbours), within);
  if (across > 0) {
    time.us = std::max(time.us, cost::message_us(profile_, over_, places.nodes(), across));
    const double rate = cost::link_bytes_per_us(profile_, over_, places.nodes());
    const comm::Hop::Of& own = hop.of[position];
    if (rate > 0) time.link = {own.across_out / rate, own.across_in / rate};
  }
  return time;
}

MessageTime Messages::exchange(int rank, const ir::Listing& listing, const ir::Op& op) {
  using ir::Topology;
  if (op.attributes.has("round")) return {};  // seldom has rows
  const ExpectedExchange& e = rows_.of(rank, listing, op);
  const int position = rows_.position(rank), ranks = static_cast<int>(e.places.node.size());
  MessageTime time;
  const bool there = op.def->moves == ir::Moves::to_experts;
  for (const comm::Hop& h : there ? e.hops.dispatch : e.hops.combine) time += hop(h, e.places, position);
  if (!makes_lists(op) || e.topology == Topology::plain) return time;
  // Headers go ahead: gates and tokens of the rows, or experts and gates of all tokens to every node.
  const double wide = listing.value(op.operand("rows")).dtype == Dtype::f64 ? 8 : 4;
  comm::Hop headers{std::vector<comm::Hop::Of>(e.places.node.size())};
  for (int p = 0; p < ranks; ++p) {
    if (e.topology == Topology::rank) {
      for (int r = 0; r < ranks; ++r) headers.add(e.places, p, r, e.counts.rows(p, r) * (4 + wide));
    } else {
      for (int n = 0; n < e.places.nodes(); ++n) {
        headers.add(e.places, p, e.places.gate_of(p, n), static_cast<double>(e.tokens * e.chosen) * (4 + wide));
      }
    }
  }
  time += hop(headers, e.places, position);
  return time;
}

// Weights from their owners and those who relay them, or gradients back to owners: as many copies as are expected.
MessageTime Messages::replicas(int rank, const ir::Listing& listing, const ir::Op& op) {
  const ExpectedExchange& e = rows_.of_copies(rank, listing, op);
  const bool back = !op.updates.empty();
  const ir::ValueId replicas = back ? op.in[0] : op.out[0];
  const auto each = static_cast<double>(listing.bytes(replicas, ir::FixedRows())) /
                    static_cast<double>(listing.value(replicas).shape[0].count);
  const int position = rows_.position(rank);
  MessageTime time;
  if (back) {
    comm::Hop all{std::vector<comm::Hop::Of>(e.places.node.size())};
    for (const ExpectedExchange::Replica& replica : e.replicas)
      all.add(e.places, replica.holder, replica.owner, each);
    return hop(all, e.places, position);
  }
  for (const bool relayed : {false, true}) {
    comm::Hop all{std::vector<comm::Hop::Of>(e.places.node.size())};
    for (const ExpectedExchange::Handover& h : e.handovers) {
      if (h.relayed == relayed) all.add(e.places, h.from, h.to, each * h.part);
    }
    time += hop(all, e.places, position);
  }
  return time;
}

// Bytes to all others alike, or to the one that is so many places on.
MessageTime Messages::collective(int rank, const ir::Op& op, double bytes) {
  const std::vector<int>& group = group_of(op.group, rank);
  MessageTime time;
  if (!hosts()) {
    time.us = within_us(static_cast<int>(group.size()), bytes);
    return time;
  }
  std::vector<int> nodes;
  for (const int member : group) nodes.push_back(rows_.node_of(member));
  const comm::Places places(0, nodes);
  const size_t ranks = group.size();
  const double each = ranks > 1 ? bytes / static_cast<double>(ranks - 1) : 0;  // bytes to one other rank
  comm::Hop all{std::vector<comm::Hop::Of>(ranks)};
  const int64_t by = op.attributes.integer_or("by", 0), places_round = std::ssize(group);
  for (size_t r = 0; r < ranks; ++r) {
    if (by != 0) {
      const int64_t next = (static_cast<int64_t>(r) + by + places_round) % places_round;
      all.add(places, static_cast<int>(r), static_cast<int>(next), bytes);
      continue;
    }
    const auto near = static_cast<double>(places.members[places.node[r]].size());
    const double within = each * (near - 1), across = each * (static_cast<double>(ranks) - near);
    all.of[r] = {within, within, across, across};
  }
  const auto own = std::find(group.begin(), group.end(), rank);
  HEDDLE_CHECK(own != group.end(), "rank {} is not in its group '{}'", rank, op.group);
  time = hop(all, places, static_cast<int>(own - group.begin()));
  // In a ring few ranks of a node send to others, each over its own card.
  if (by != 0 && places.nodes() > 1)
    time.us = std::max(time.us, cost::message_us(profile_, over_, places.nodes(), bytes * cards_));
  if (bytes <= 0) time.us = within_us(static_cast<int>(ranks), 0);
  return time;
}

// A send or a receive.
MessageTime Messages::letter(int rank, const ir::Op& op, double bytes) {
  MessageTime time;
  if (!hosts()) {
    time.us = within_us(2, bytes);
    return time;
  }
  const std::vector<int>& group = group_of(op.group, rank);
  const auto own = std::find(group.begin(), group.end(), rank) - group.begin();
  const int64_t peer = own + op.attributes.integer("step");
  HEDDLE_CHECK(peer >= 0 && peer < std::ssize(group), "rank {} has no such neighbour in '{}'", rank, op.group);
  if (rows_.node_of(rank) == rows_.node_of(group[peer])) {
    time.us = within_us(2, bytes);
    return time;
  }
  time.us = cost::message_us(profile_, over_, 2, bytes);
  const double rate = cost::link_bytes_per_us(profile_, over_, 2);
  if (op.def->moves == ir::Moves::to_neighbour && rate > 0)
    time.link = {bytes / rate, bytes / rate};  // the receiver's in
  return time;
}

MessageTime Messages::of(int rank, const ir::Listing& listing, const ir::Op& op, double message_bytes) {
  if (!op.def->collective) return letter(rank, op, message_bytes);
  if (ir::is_exchange(op.def->moves)) return exchange(rank, listing, op);
  if (op.def->moves == ir::Moves::nothing && ir::place_of("placement", op.def->operands) >= 0)
    return replicas(rank, listing, op);
  MessageTime time = collective(rank, op, message_bytes);
  if (op.def->moves == ir::Moves::counts &&
      op.attributes.word("topology") != "plain") {  // numbers of every source, too
    const ExpectedExchange& e = rows_.of(rank, listing, op);
    const int64_t ranks = e.counts.ranks(), each = device::numbers_each(ranks, e.places.nodes());
    time += collective(rank, op, static_cast<double>(each * 4 * (ranks - 1)));
  }
  return time;
}

}  // namespace heddle::runtime
