#include "heddle/comm/placement/placement.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "heddle/base/error.h"
#include "heddle/comm/placement/trial.h"

namespace heddle::comm {

bool Holders::near(int64_t a, int64_t b) const {
  for (int64_t s = 0; s < slices; ++s) {
    if (node_of[a * slices + s] != node_of[b * slices + s]) return false;
  }
  return true;
}

int64_t Placement::Replica::rows() const { return std::accumulate(rows_S.begin(), rows_S.end(), int64_t{0}); }

Placement::Placement(const Holders& holders, int64_t experts)
    : own_(experts / holders.count()),
      replicas_(holders.replicas),
      used_H_(static_cast<size_t>(holders.count()), 0) {
  HEDDLE_CHECK(experts % holders.count() == 0, "{} experts on {} holders", experts, holders.count());
  for (int64_t h = 0; h < holders.count(); ++h) {
    for (int64_t i = 0; i < own_; ++i) expert_of_slot_.push_back(static_cast<int32_t>(h * own_ + i));
    expert_of_slot_.insert(expert_of_slot_.end(), static_cast<size_t>(replicas_), -1);
  }
}

void Placement::add(int64_t expert, int64_t holder, std::vector<int64_t> rows_S) {
  int64_t& used = used_H_[holder];
  HEDDLE_CHECK(used < replicas_, "holder {} has {} slots for copies", holder, replicas_);
  const int64_t slot = holder * slots_each() + own_ + used++;
  expert_of_slot_[slot] = static_cast<int32_t>(expert);
  const auto behind = std::upper_bound(list_.begin(), list_.end(), expert,
                                       [](int64_t e, const Replica& replica) { return e < replica.expert; });
  list_.insert(behind, Replica{expert, holder, slot, std::move(rows_S)});
}

std::vector<int64_t> Placement::rows_of(const Loads& loads) const {
  std::vector<int64_t> rows(used_H_.size(), 0);
  for (int64_t e = 0; e < loads.experts; ++e) {
    for (int64_t s = 0; s < loads.sources; ++s) rows[owner(e)] += loads.at(s, e);
  }
  for (const Replica& replica : list_) {
    rows[owner(replica.expert)] -= replica.rows();
    rows[replica.holder] += replica.rows();
  }
  return rows;
}

std::vector<int32_t> alike_sources(const std::vector<double>& share_E, int64_t sources, int64_t rows) {
  const double all = std::accumulate(share_E.begin(), share_E.end(), 0.0);
  std::vector<int32_t> rows_SE;
  for (int64_t s = 0; s < sources; ++s) {
    for (const double share : share_E)
      rows_SE.push_back(all > 0 ? static_cast<int32_t>(std::llround(static_cast<double>(rows) * share / all)) : 0);
  }
  return rows_SE;
}

namespace {

/// Number of peaks that are tried between the even share and what is there, closer to each other near the first.
/// Then the part of the even share below which a replica is not worth its slot, nor imbalance worth a search.
constexpr int64_t kPeaks = 16, kLeastReplicaPart = 64;

/// The awaited part of a replica's weights. They come twice; those of an expert's first map are waited for in the
/// forward, two thirds of one coming. The rest goes over a channel of its own beside other work.
constexpr int64_t kAwaitedPart = 3;

/// The time of a microbatch: the busiest rank's products, the busiest link's rows, and a part of the busiest link's
/// replicas. That part is what is awaited, or what the products of an even share can't hide.
class Times {
 public:
  Times(const Totals& totals, const Holders& holders, const CopyCosts& costs, int64_t even)
      : links_(totals, holders, costs), row_ps_(costs.row_ps), hidden_ps_(even * costs.row_ps) {}
  int64_t of_products(int64_t most) const { return most * row_ps_; }
  int64_t of(const Placement& placement, int64_t most) const {
    const LinkTimes::ReplicaTimes replicas = links_.of_replicas(placement);
    return of_products(most) + links_.of_rows(placement) +
           std::max(replicas.weights / kAwaitedPart, replicas.all - hidden_ps_);
  }

 private:
  LinkTimes links_;
  int64_t row_ps_, hidden_ps_;
};

/// All that are tried at a peak.
std::vector<Trial::Aim> aims(bool one_node) {
  std::vector<Trial::Aim> all;
  for (const Trial::Reach reach : {Trial::Reach::near_only, Trial::Reach::near_first, Trial::Reach::anywhere}) {
    if (reach != Trial::Reach::near_only && one_node) continue;
    for (const Trial::Order order : {Trial::Order::expert_by_expert, Trial::Order::largest_first}) {
      for (const Trial::Turn turn : {Trial::Turn::fullest_first, Trial::Turn::fullest_last})
        all.push_back({.reach = reach, .order = order, .turn = turn});
    }
  }
  return all;
}

struct Spread {
  int64_t most = 0, even = 0;
  int64_t least() const { return std::max<int64_t>(1, even / kLeastReplicaPart); }
};
Spread spread_of(const std::vector<int64_t>& rows_H) {
  const int64_t all = std::accumulate(rows_H.begin(), rows_H.end(), int64_t{0}), count = std::ssize(rows_H);
  return {*std::max_element(rows_H.begin(), rows_H.end()), (all + count - 1) / count};
}

}  // namespace

bool is_uneven(const std::vector<int64_t>& rows_H) {
  const Spread spread = spread_of(rows_H);
  return spread.most > spread.even + spread.least();
}

namespace {

/// And how long it takes.
struct Choice {
  Placement placement;
  int64_t ps = 0;
};

Choice choose(const Loads& loads, const Holders& holders, const PlacementRules& rules) {
  Placement best(holders, loads.experts);
  const Totals totals(loads, holders);
  const Spread spread = spread_of(totals.rows_H);
  const int64_t most = spread.most, even = spread.even, least = spread.least();
  const Times times(totals, holders, rules.costs, even);
  int64_t best_ps = times.of(best, most);
  if (holders.replicas == 0 || holders.count() == 1 || !is_uneven(totals.rows_H)) return {std::move(best), best_ps};
  for (Trial::Aim aim : aims(totals.one_node())) {
    aim.least = least;
    for (int64_t i = 0; i < kPeaks; ++i) {
      aim.peak = even + (most - even) * (i * i * i) / (kPeaks * kPeaks * kPeaks);
      if (times.of_products(aim.peak) > best_ps) break;  // the fullest keeps as many
      Trial trial(loads, totals, holders, rules.whole_sources, aim);
      if (times.of_products(trial.most()) > best_ps) continue;  // whatever the links carry
      Placement made = trial.placement();
      const int64_t ps = times.of(made, trial.most());
      if (ps > best_ps || (ps == best_ps && made.replicas().size() >= best.replicas().size())) continue;
      best = std::move(made);
      best_ps = ps;
    }
  }
  return {std::move(best), best_ps};
}

}  // namespace

Placement choose_placement(const Loads& loads, const Holders& holders, const PlacementRules& rules) {
  return choose(loads, holders, rules).placement;
}

int64_t predicted_ps(const Loads& loads, const Holders& holders, const PlacementRules& rules) {
  return choose(loads, holders, rules).ps;
}

}  // namespace heddle::comm
