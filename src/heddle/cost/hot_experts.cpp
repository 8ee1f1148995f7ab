#include "heddle/cost/hot_experts.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <mutex>
#include <numeric>
#include <tuple>

#include "heddle/cost/routing.h"

namespace heddle::cost {

namespace {

// Constants of comm/placement: peaks that are tried, the least part of the even share that a copy takes, and the
// part of its weights' transfer that is waited for.
constexpr int kPeaks = 16;
constexpr double kLeast = 1.0 / 64, kAwaitedPart = 1.0 / 3;

/// A way to place copies, whatever they cost: rows of the fullest rank over the mean, and copies on the busiest
/// link of a rank and of a node. Weights' transfers count as half a copy and gradients' as the other half.
struct Placed {
  double most = 1, replicas = 0;
  double weights_within = 0, all_within = 0, weights_across = 0, all_across = 0;
};

/// Rows of each rank over the mean, the fullest first.
std::vector<double> loads_of(const HotExperts& of) {
  const auto n = static_cast<double>(of.ranks);
  std::vector<double> loads{of.imbalance};
  const double deviation = (of.imbalance - 1) / normal_quantile(std::pow(0.5, 1 / n));
  double sum = 0;
  for (int i = 1; i < of.ranks; ++i) {
    loads.push_back(std::max(0.0, 1 - deviation * normal_quantile((i + 0.5) / n)));
    sum += loads.back();
  }
  for (int i = 1; i < of.ranks && sum > 0; ++i)
    loads[i] = std::min(of.imbalance, loads[i] * (n - of.imbalance) / sum);
  return loads;
}

/// The node of each rank by its place in the order of loads.
std::vector<int> nodes_of(const HotExperts& of) {
  int step = std::max(1, static_cast<int>(0.618 * of.ranks));
  while (std::gcd(step, of.ranks) != 1) ++step;
  std::vector<int> nodes;
  for (int64_t i = 0; i < of.ranks; ++i)
    nodes.push_back(static_cast<int>(i * step % of.ranks) / std::max(1, of.on_node));
  return nodes;
}

/// Copies that each link carries each way.
struct Links {
  explicit Links(size_t count) : out(count, 0), in(count, 0) {}
  std::vector<double> out, in;
  double busiest() const {
    return std::max(*std::max_element(out.begin(), out.end()), *std::max_element(in.begin(), in.end()));
  }
};

class Shedding {
 public:
  Shedding(const HotExperts& of, const std::vector<double>& loads, const std::vector<int>& nodes)
      : of_(of), loads_(loads), nodes_(nodes), own_(std::max(1.0, static_cast<double>(of.experts) / of.ranks)) {}

  /// `one_by_one`: all that goes of an expert before the next, else always of the one that has most left.
  struct Aim {
    double peak = 1;
    bool near_only = false, one_by_one = true, fullest_first = true;
  };
  Placed at(const Aim& aim) {
    aim_ = aim;
    left_ = loads_;
    used_.assign(loads_.size(), 0);
    made_.clear();
    const auto first =
        std::find_if(loads_.begin(), loads_.end(), [&](double rows) { return rows < aim.peak + kLeast; });
    const auto above = static_cast<size_t>(first - loads_.begin());  // the fullest come first
    for (size_t i = 0; i < above; ++i) shed(aim.fullest_first ? i : above - 1 - i);
    return counted();
  }

 private:
  struct Replica {
    size_t owner, expert, holder;
  };

  void shed(size_t owner) {
    std::vector<double> rows(static_cast<size_t>(own_), loads_[owner] / own_);
    const size_t first = made_.size();
    for (size_t expert = 0; expert < rows.size() && left_[owner] - aim_.peak >= kLeast;) {
      if (!aim_.one_by_one) expert = static_cast<size_t>(std::max_element(rows.begin(), rows.end()) - rows.begin());
      const double wanted = std::min(left_[owner] - aim_.peak, rows[expert]);
      const size_t to = wanted < kLeast ? loads_.size() : receiver(owner, expert, wanted, first);
      if (to == loads_.size()) {
        if (!aim_.one_by_one) return;
        ++expert;
        continue;
      }
      const double taken = std::min(wanted, aim_.peak - left_[to]);
      left_[owner] -= taken;
      left_[to] += taken;
      rows[expert] -= taken;
      ++used_[to];
      made_.push_back({owner, expert, to});
    }
  }

  // The rank is on the owner's node where there is room: one with room for all and little more, else the one with
  // most.
  size_t receiver(size_t owner, size_t expert, double wanted, size_t first) const {
    size_t best = loads_.size();
    std::tuple<bool, bool, double> best_rank;
    for (size_t h = 0; h < loads_.size(); ++h) {
      const double room = aim_.peak - left_[h];
      const bool far = nodes_[h] != nodes_[owner];
      if (h == owner || used_[h] == of_.replicas || room < kLeast || (aim_.near_only && far)) continue;
      const bool held =
          std::any_of(made_.begin() + static_cast<std::ptrdiff_t>(first), made_.end(),
                      [&](const Replica& replica) { return replica.holder == h && replica.expert == expert; });
      if (held) continue;
      const bool fits = aim_.one_by_one && room >= wanted;
      const std::tuple rank{far, !fits, fits ? room : -room};
      if (best < loads_.size() && rank >= best_rank) continue;
      best = h;
      best_rank = rank;
    }
    return best;
  }

  // An owner hands an expert to a node once; every copy gets all weights, and gives its own gradient back.
  Placed counted() const {
    const auto nodes = static_cast<size_t>(1 + *std::max_element(nodes_.begin(), nodes_.end()));
    Links within(loads_.size()), across(nodes);
    std::map<std::tuple<size_t, size_t, int>, bool> handed;
    for (const Replica& replica : made_) {
      const bool far = nodes_[replica.owner] != nodes_[replica.holder];
      const bool fresh = handed.try_emplace({replica.owner, replica.expert, nodes_[replica.holder]}, true).second;
      within.in[replica.holder] += 0.5;
      if (fresh && !far) within.out[replica.owner] += 0.5;
      if (fresh && far) across.out[node(replica.owner)] += 0.5, across.in[node(replica.holder)] += 0.5;
    }
    Placed p;
    p.most = *std::max_element(left_.begin(), left_.end());
    p.replicas = static_cast<double>(made_.size()) / static_cast<double>(loads_.size());
    p.weights_within = within.busiest(), p.weights_across = across.busiest();
    for (const Replica& replica : made_) {
      const bool far = nodes_[replica.owner] != nodes_[replica.holder];
      if (far) {
        across.out[node(replica.holder)] += 0.5, across.in[node(replica.owner)] += 0.5;
      } else {
        within.out[replica.holder] += 0.5, within.in[replica.owner] += 0.5;
      }
    }
    p.all_within = within.busiest(), p.all_across = across.busiest();
    return p;
  }
  size_t node(size_t rank) const { return static_cast<size_t>(nodes_[rank]); }

  const HotExperts& of_;
  const std::vector<double>& loads_;
  const std::vector<int>& nodes_;
  const double own_;
  Aim aim_;
  std::vector<double> left_;
  std::vector<int> used_;
  std::vector<Replica> made_;
};

/// No copies, then what is reached at each peak.
std::vector<Placed> all_ways(const HotExperts& of) {
  std::vector<Placed> ways{{.most = of.imbalance}};
  const std::vector<double> loads = loads_of(of);
  const std::vector<int> nodes = nodes_of(of);
  Shedding shedding(of, loads, nodes);
  for (const int kind : {0, 1, 2, 3, 4, 5, 6, 7}) {
    Shedding::Aim aim{.near_only = kind % 2 == 0, .one_by_one = kind / 2 % 2 == 0, .fullest_first = kind / 4 == 0};
    if (!aim.near_only && of.on_node >= of.ranks) continue;
    for (int i = 0; i < kPeaks; ++i) {
      aim.peak = 1 + (of.imbalance - 1) * std::pow(static_cast<double>(i) / kPeaks, 3);
      ways.push_back(shedding.at(aim));
    }
  }
  return ways;
}

/// Ways do not depend on what they cost, and a search asks for few loads many times.
const std::vector<Placed>& ways_of(const HotExperts& of) {
  static std::mutex mutex;
  static std::map<std::tuple<int64_t, int, int, int, double>, std::vector<Placed>> known;
  const std::tuple key{of.experts, of.ranks, of.on_node, of.replicas, of.imbalance};
  {
    const std::lock_guard lock(mutex);
    if (const auto at = known.find(key); at != known.end()) return at->second;
  }
  std::vector<Placed> made = all_ways(of);
  const std::lock_guard lock(mutex);
  return known.emplace(key, std::move(made)).first->second;
}

}  // namespace

Evened evened(const HotExperts& of, const CopySeconds& s, bool by_cost) {
  if (of.replicas <= 0 || of.ranks <= 1 || !(of.imbalance > 1 + kLeast))
    return {.imbalance = std::max(1.0, of.imbalance)};
  const auto result = [&](const Placed& p) {
    const auto link = [&](double within, double across) {
      return std::max(within * s.replica_within, across * s.replica_across);
    };
    const double sent = link(p.all_within, p.all_across);
    const double awaited =
        std::max({0.0, kAwaitedPart * link(p.weights_within, p.weights_across), sent - s.products});
    return Evened{p.most, awaited, sent, p.replicas};
  };
  Evened best;
  double least = 0;
  for (const Placed& p : ways_of(of)) {
    const Evened e = result(p);
    const double rank = by_cost ? e.imbalance * (s.products + s.crossings) + e.awaited_s : e.imbalance;
    const bool first = least == 0;
    if (!first && (rank > least || (rank == least && e.replicas >= best.replicas))) continue;
    best = e;
    least = rank;
  }
  return best;
}

}  // namespace heddle::cost
