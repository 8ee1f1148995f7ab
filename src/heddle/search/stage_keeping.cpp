#include "heddle/search/stage_keeping.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <set>
#include <tuple>

namespace heddle::search {

namespace {

constexpr int kRounds = 4;      // rounds of layers and ways in turn
constexpr int kMoves = 16;      // moves of one layer
constexpr size_t kTargets = 6;  // ranks that may get it

int fastest_of(const StageCosts& costs, size_t ways) {
  int best = 0;
  for (int w = 1; w < static_cast<int>(ways); ++w)
    if (std::tuple(costs.layer_s(w), costs.kept_bytes(w)) < std::tuple(costs.layer_s(best), costs.kept_bytes(best)))
      best = w;
  return best;
}

/// Drops activations, rank by rank, until all fit.
class Knapsack {
 public:
  Knapsack(const StageCosts& costs, size_t ways, const schedule::Schedule& schedule, double limit_bytes)
      : costs_(costs), ways_(static_cast<int>(ways)), schedule_(schedule), limit_bytes_(limit_bytes) {}

  /// Ways of the stages from `way_of_stage` on; false where some rank can't fit.
  bool fill(const std::vector<int>& layers, std::vector<int>& way_of_stage, const Software& software) const {
    const schedule::Placement& place = schedule_.placement;
    while (true) {
      const Staged staged = costs_.staged(place, way_of_stage, layers);
      const std::vector<schedule::Peak> peaks = schedule::peaks_of(schedule_, staged.stage_bytes);
      bool all_fit = true;
      for (int r = 0; r < place.ranks; ++r) {
        const auto rank = static_cast<size_t>(r);
        const double over =
            (peaks[rank].bytes + staged.fixed_bytes[rank] + staged.working_bytes[rank]) * software.reserve +
            software.context_bytes - limit_bytes_;
        if (over <= 0) continue;
        all_fit = false;
        if (!give_up(r, over, peaks[rank].bytes, staged, way_of_stage)) return false;
      }
      if (all_fit) return true;
    }
  }

 private:
  // Stages of the rank take ways that keep less until about `over` bytes are free. It takes the cheapest that is
  // enough by itself, else the one that frees most for its time, and another.
  bool give_up(int rank, double over, double peak_bytes, const Staged& staged,
               std::vector<int>& way_of_stage) const {
    const schedule::Placement& place = schedule_.placement;
    double kept = 0;  // bytes of a microbatch in all stages of the rank
    std::vector<int> stages;
    for (const int copy : place.stages_of(rank)) {
      const int s = copy % place.stages;
      if (staged.layers[s] == 0) continue;
      stages.push_back(s);
      const schedule::StageBytes& bytes = staged.stage_bytes[s];
      kept += bytes.until_input_grad + bytes.until_weight_grad;
    }
    if (kept <= 0) return false;
    const double in_flight = peak_bytes / kept;
    for (bool any = false; over > 0; any = true) {
      std::tuple<bool, double> best{true, std::numeric_limits<double>::infinity()};
      int best_stage = -1, best_way = -1;
      double best_frees = 0;
      for (const int s : stages) {
        const auto stage = static_cast<size_t>(s);
        const int now = way_of_stage[stage], layers = staged.layers[stage];
        for (int w = 0; w < ways_; ++w) {
          const double frees = layers * in_flight * (costs_.kept_bytes(now) - costs_.kept_bytes(w));
          if (frees <= 0) continue;
          const double costs = layers * std::max(0.0, costs_.layer_s(w) - costs_.layer_s(now));
          const std::tuple<bool, double> value{frees < over, frees < over ? costs / frees : costs};
          if (value >= best) continue;
          best = value, best_stage = s, best_way = w, best_frees = frees;
        }
      }
      if (best_stage < 0) return any;
      way_of_stage[static_cast<size_t>(best_stage)] = best_way;
      over -= best_frees;
    }
    return true;
  }

  const StageCosts& costs_;
  int ways_;
  const schedule::Schedule& schedule_;
  double limit_bytes_;
};

// Ranks by the work of one microbatch, the busiest first.
std::vector<int> by_work(const schedule::Placement& place, const Staged& staged) {
  std::vector<double> work(static_cast<size_t>(place.ranks), 0);
  for (size_t c = 0; c < place.rank_of.size(); ++c) {
    const schedule::StageTimes& t = staged.times.stages[c % static_cast<size_t>(place.stages)];
    work[static_cast<size_t>(place.rank_of[c])] += t.forward + t.input_grad + t.weight_grad;
  }
  std::vector<int> ranks(work.size());
  std::iota(ranks.begin(), ranks.end(), 0);
  std::stable_sort(ranks.begin(), ranks.end(),
                   [&](int a, int b) { return work[static_cast<size_t>(a)] > work[static_cast<size_t>(b)]; });
  return ranks;
}

// The rank's stage with most layers, or with least.
int fullest_stage(const schedule::Placement& place, int rank, const std::vector<int>& layers, bool most) {
  int found = -1;
  for (const int copy : place.stages_of(rank)) {
    const int s = copy % place.stages;
    const int n = layers[s];
    if (found < 0 || (most ? n > layers[static_cast<size_t>(found)] : n < layers[static_cast<size_t>(found)]))
      found = s;
  }
  return found;
}

}  // namespace

std::optional<KeptByStage> keep_by_stage(const Job& job, const Behaviour& behaviour,
                                         const PreparedSchedule& prepared, const std::vector<Keeping>& ways,
                                         double memory_bytes) {
  const schedule::Placement& place = prepared.schedule.placement;
  const StageCosts costs(job, behaviour, ways);
  const Knapsack knapsack(costs, ways.size(), prepared.schedule, memory_bytes);
  const int fastest = fastest_of(costs, ways.size());
  int lightest = 0;
  for (int w = 1; w < static_cast<int>(ways.size()); ++w)
    if (costs.kept_bytes(w) < costs.kept_bytes(lightest)) lightest = w;
  const auto all = [&](int way) { return std::vector<int>(static_cast<size_t>(place.stages), way); };
  std::optional<KeptByStage> best;
  std::set<std::vector<int>> seen;
  // The ways that such layers take, and whether they are better than the best so far.
  const auto attempt = [&](const std::vector<int>& layers, std::vector<int>& way_of_stage) {
    way_of_stage = all(fastest);
    if (!knapsack.fill(layers, way_of_stage, job.software)) return false;
    Exact exact = exact_of(job, behaviour, prepared, costs.staged(place, way_of_stage, layers));
    if (!fits(exact, job, memory_bytes) || (best && exact.step_s >= best->exact.step_s)) return false;
    best = KeptByStage{way_of_stage, std::move(exact)};
    return true;
  };
  std::vector<int> way_of_stage;
  for (const int begin : {fastest, lightest}) {
    std::vector<int> layers = costs.spread(place, all(begin));
    for (int round = 0; round < kRounds && seen.insert(layers).second; ++round) {
      attempt(layers, way_of_stage);
      layers = costs.spread(place, way_of_stage);
    }
  }
  // Then layer by layer from the busiest rank to the idlest ones.
  for (int move = 0; move < kMoves && best && !job.software.even_stages; ++move) {
    const std::vector<int> layers = best->exact.layers;
    const std::vector<int> ranks = by_work(place, costs.staged(place, best->way_of_stage, layers));
    const int from = fullest_stage(place, ranks.front(), layers, true);
    bool better = false;
    for (size_t i = 0; i < std::min(kTargets, ranks.size() - 1); ++i) {
      std::vector<int> moved = layers;
      --moved[static_cast<size_t>(from)];
      ++moved[static_cast<size_t>(fullest_stage(place, ranks[ranks.size() - 1 - i], layers, false))];
      if (moved[static_cast<size_t>(from)] < 0 || !seen.insert(moved).second) continue;
      better |= attempt(moved, way_of_stage);
    }
    if (!better) break;
  }
  return best;
}

double unbounded_step_s(const Job& job, const Behaviour& behaviour, const PreparedSchedule& prepared,
                        const std::vector<Keeping>& ways) {
  const schedule::Placement& place = prepared.schedule.placement;
  const StageCosts costs(job, behaviour, ways);
  const std::vector<int> fastest(static_cast<size_t>(place.stages), fastest_of(costs, ways.size()));
  return exact_of(job, behaviour, prepared, costs.staged(place, fastest, costs.spread(place, fastest))).step_s;
}

Exact exact_by_stage(const Job& job, const Behaviour& behaviour, const PreparedSchedule& prepared,
                     const std::vector<Keeping>& keeping_of_stage, const std::vector<int>& layers) {
  return exact_of(job, behaviour, prepared,
                  stage_job(job, behaviour, prepared.schedule.placement, keeping_of_stage, layers));
}

}  // namespace heddle::search
