#include "heddle/comm/placement/trial.h"

#include <algorithm>
#include <numeric>
#include <tuple>

#include "heddle/comm/placement/relay.h"

namespace heddle::comm {

namespace {

size_t at(int64_t i) { return static_cast<size_t>(i); }

/// 0 … count − 1, by decreasing weight, equal ones by index.
std::vector<int64_t> heaviest_first(const std::vector<int64_t>& weights, int64_t first, int64_t last) {
  std::vector<int64_t> order(at(last - first));
  std::iota(order.begin(), order.end(), first);
  std::stable_sort(order.begin(), order.end(),
                   [&](int64_t a, int64_t b) { return weights[at(a)] > weights[at(b)]; });
  return order;
}

}  // namespace

Totals::Totals(const Loads& loads, const Holders& holders)
    : rows_E(at(loads.experts), 0),
      rows_H(at(holders.count()), 0),
      rows_SH(at(loads.sources * holders.count()), 0) {
  const int64_t own = loads.experts / holders.count();
  for (int64_t s = 0; s < loads.sources; ++s) {
    for (int64_t e = 0; e < loads.experts; ++e) {
      const int64_t rows = loads.at(s, e);
      rows_E[at(e)] += rows;
      rows_H[at(e / own)] += rows;
      rows_SH[at(s * holders.count() + e / own)] += rows;
    }
  }
  for (int64_t a = 0; a < holders.count(); ++a) {
    for (int64_t b = 0; b < holders.count(); ++b) near_HH.push_back(holders.near(a, b));
  }
}

Trial::Trial(const Loads& loads, const Totals& totals, const Holders& holders, bool whole_sources, const Aim& aim)
    : loads_(loads),
      totals_(totals),
      holders_(holders),
      whole_(whole_sources),
      aim_(aim),
      own_(loads.experts / holders.count()),
      rows_H_(totals.rows_H),
      rows_E_(totals.rows_E),
      held_H_(rows_H_.size()) {
  for (int64_t e = 0; whole_ && e < loads.experts; ++e) {
    for (int64_t s = 0; s < loads.sources; ++s) left_ES_.push_back(loads.at(s, e));
  }
  std::vector<int64_t> turns = heaviest_first(rows_H_, 0, holders.count());
  if (aim.turn == Turn::fullest_last) std::reverse(turns.begin(), turns.end());
  for (const int64_t h : turns) {
    if (rows_H_[at(h)] >= aim.peak + aim.least) shed(h);
  }
}

Placement Trial::placement() {
  Placement made(holders_, loads_.experts);
  std::stable_sort(planned_.begin(), planned_.end(),
                   [](const Planned& a, const Planned& b) { return a.expert < b.expert; });
  for (auto first = planned_.begin(); first != planned_.end();) {
    const auto last =
        std::find_if(first, planned_.end(), [&](const Planned& p) { return p.expert != first->expert; });
    if (!whole_) split(first->expert, {first, last});
    for (; first != last; ++first) made.add(first->expert, first->holder, std::move(first->rows_S));
  }
  return made;
}

void Trial::shed(int64_t holder) {
  std::vector<int64_t> experts = heaviest_first(rows_E_, holder * own_, (holder + 1) * own_);
  while (!experts.empty()) {
    const auto next = aim_.order == Order::expert_by_expert
                          ? experts.begin()
                          : std::max_element(experts.begin(), experts.end(),
                                             [&](int64_t a, int64_t b) { return rows_E_[at(a)] < rows_E_[at(b)]; });
    if (!shed_some(holder, *next)) experts.erase(next);
  }
}

bool Trial::shed_some(int64_t holder, int64_t expert) {
  const int64_t excess = rows_H_[at(holder)] - aim_.peak;
  if (excess < aim_.least || rows_E_[at(expert)] < aim_.least) return false;
  const int64_t wanted = std::min(excess, rows_E_[at(expert)]), to = receiver(expert, wanted);
  return to >= 0 && plan(expert, to, std::min(wanted, aim_.peak - rows_H_[at(to)]));
}

int64_t Trial::receiver(int64_t expert, int64_t rows) const {
  const int64_t owner = this->owner(expert);
  int64_t best = -1;
  std::tuple<bool, bool, int64_t> best_rank;  // far, too small, then by room
  for (int64_t h = 0; h < holders_.count(); ++h) {
    const int64_t room = aim_.peak - rows_H_[at(h)];
    const std::vector<int64_t>& held = held_H_[at(h)];
    if (h == owner || std::ssize(held) == holders_.replicas || room < aim_.least) continue;
    const bool near = totals_.near(owner, h);
    if (aim_.reach == Reach::near_only && !near) continue;
    if (std::find(held.begin(), held.end(), expert) != held.end()) continue;
    const bool fits = aim_.order == Order::expert_by_expert && room >= rows;
    const std::tuple rank{aim_.reach == Reach::near_first && !near, !fits, fits ? room : -room};
    if (best >= 0 && rank >= best_rank) continue;
    best = h;
    best_rank = rank;
  }
  return best;
}

bool Trial::plan(int64_t expert, int64_t holder, int64_t rows) {
  Planned replica{expert, holder, rows, {}};
  if (whole_) {
    replica.rows_S = whole_sources_of(expert, holder, rows);
    replica.rows = std::accumulate(replica.rows_S.begin(), replica.rows_S.end(), int64_t{0});
    if (replica.rows < aim_.least) return false;
    for (int64_t s = 0; s < loads_.sources; ++s) left_ES_[at(expert * loads_.sources + s)] -= replica.rows_S[at(s)];
  }
  rows_E_[at(expert)] -= replica.rows;
  rows_H_[at(owner(expert))] -= replica.rows;
  rows_H_[at(holder)] += replica.rows;
  held_H_[at(holder)].push_back(expert);
  planned_.push_back(std::move(replica));
  return true;
}

std::vector<int64_t> Trial::whole_sources_of(int64_t expert, int64_t holder, int64_t rows) const {
  const auto first = left_ES_.begin() + expert * loads_.sources;
  const std::vector<int64_t> left(first, first + loads_.sources);
  std::vector<int64_t> taken(left.size(), 0);
  for (int distance = 0; distance <= 3; ++distance) {
    for (const int64_t s : heaviest_first(left, 0, loads_.sources)) {
      if (this->distance(s, holder, owner(expert)) != distance || left[at(s)] > rows) continue;
      taken[at(s)] = left[at(s)];
      rows -= left[at(s)];
    }
  }
  return taken;
}

int Trial::distance(int64_t source, int64_t holder, int64_t owner) const {
  const int64_t of = source / holders_.slices;
  if (of == holder) return 0;
  if (of == owner) return 3;
  return totals_.near(of, holder) ? 1 : 2;
}

void Trial::split(int64_t expert, std::span<Planned> replicas) const {
  std::vector<int64_t> left(at(loads_.sources)), wanted;
  std::vector<int> distance_CS;
  for (int64_t s = 0; s < loads_.sources; ++s) left[at(s)] = loads_.at(s, expert);
  for (Planned& replica : replicas) {
    replica.rows_S.assign(left.size(), 0);
    wanted.push_back(replica.rows);
    for (int64_t s = 0; s < loads_.sources; ++s) distance_CS.push_back(distance(s, replica.holder, owner(expert)));
  }
  for (int distance = 0; distance <= 3; ++distance) {
    for (size_t c = 0; c < replicas.size(); ++c) {
      for (size_t s = 0; s < left.size() && wanted[c] > 0; ++s) {
        if (distance_CS[c * left.size() + s] != distance) continue;
        const int64_t rows = std::min(wanted[c], left[s]);
        replicas[c].rows_S[s] += rows;
        wanted[c] -= rows;
        left[s] -= rows;
      }
    }
  }
}

LinkTimes::Carried::Carried(const std::vector<int>& node_of) : node_of_(node_of) {
  const int nodes = 1 + *std::max_element(node_of_.begin(), node_of_.end());
  within_out_.resize(node_of_.size(), 0);
  within_in_.resize(node_of_.size(), 0);
  across_out_.resize(at(nodes), 0);
  across_in_.resize(at(nodes), 0);
}

void LinkTimes::Carried::add(int64_t from, int64_t to, int64_t within_ps, int64_t across_ps) {
  if (from == to) return;
  const auto a = at(node_of_[at(from)]), b = at(node_of_[at(to)]);
  (a == b ? within_out_[at(from)] : across_out_[a]) += a == b ? within_ps : across_ps;
  (a == b ? within_in_[at(to)] : across_in_[b]) += a == b ? within_ps : across_ps;
}

int64_t LinkTimes::Carried::busiest() const {
  int64_t most = 0;
  for (const auto* links : {&within_out_, &within_in_, &across_out_, &across_in_})
    most = std::max(most, *std::max_element(links->begin(), links->end()));
  return most;
}

LinkTimes::LinkTimes(const Totals& totals, const Holders& holders, const CopyCosts& costs)
    : holders_(holders), costs_(costs), without_(holders.node_of) {
  for (int64_t s = 0; s < std::ssize(holders.node_of); ++s) {
    for (int64_t h = 0; h < holders.count(); ++h)
      carry(without_, s, h, totals.rows_SH[at(s * holders.count() + h)]);
  }
}

void LinkTimes::carry(Carried& carried, int64_t source, int64_t holder, int64_t rows) const {
  for (int64_t i = 0; i < holders_.slices; ++i)
    carried.add(source, holder * holders_.slices + i, rows * costs_.row_within_ps, rows * costs_.row_across_ps);
}

int64_t LinkTimes::of_rows(const Placement& placement) const {
  Carried carried = without_;
  for (const Placement::Replica& replica : placement.replicas()) {
    for (int64_t s = 0; s < std::ssize(replica.rows_S); ++s) {
      const int64_t rows = replica.rows_S[at(s)];
      if (rows == 0) continue;
      carry(carried, s, placement.owner(replica.expert), -rows);
      carry(carried, s, replica.holder, rows);
    }
  }
  return carried.busiest();
}

LinkTimes::ReplicaTimes LinkTimes::of_replicas(const Placement& placement) const {
  const int64_t slices = holders_.slices;
  Carried carried(holders_.node_of);
  const auto carry_parts = [&](int64_t from, int64_t to,
                               int64_t parts) {  // weights, and gradients, are half of a copy
    for (int64_t i = 0; i < slices; ++i)
      carried.add(from * slices + i, to * slices + i, costs_.replica_within_ps / 2 / parts,
                  costs_.replica_across_ps / 2 / parts);
  };
  ReplicaTimes times;
  for (const Handover& h : handovers(placement.expert_of_slot(), holders_)) carry_parts(h.from, h.to, h.parts);
  times.weights = carried.busiest();
  for (const Placement::Replica& replica : placement.replicas())
    carry_parts(replica.holder, placement.owner(replica.expert), 1);
  times.all = carried.busiest();
  return times;
}

}  // namespace heddle::comm
