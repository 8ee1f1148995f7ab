#include "heddle/session/ranks/rank_rows.h"

#include <algorithm>
#include <numeric>

namespace heddle::session {

namespace {

double most_over_mean(const std::vector<double>& rows) {
  const double all = std::accumulate(rows.begin(), rows.end(), 0.0);
  return *std::max_element(rows.begin(), rows.end()) * static_cast<double>(rows.size()) / all;
}

}  // namespace

std::optional<FullestRank> fullest_rank(const train::StepResult& result, const train::ExpertPlacements& placements,
                                        const plan::Mesh& mesh) {
  const auto holders = static_cast<size_t>(mesh.at(0).of(ir::Axis::ep));
  if (holders == 1) return std::nullopt;
  std::vector<double> routed(holders, 0), computed(holders, 0);
  for (const train::StepResult::Load& load : result.loads()) {
    const size_t each = load.rows_E.size() / holders;
    for (size_t e = 0; e < load.rows_E.size(); ++e) {
      const auto home = static_cast<size_t>(placements.of(load.layer, static_cast<int64_t>(e)));
      routed[home / each] += load.rows_E[e];
    }
  }
  for (size_t r = 0; r < result.work.size(); ++r)
    computed[static_cast<size_t>(mesh.at(static_cast<int>(r)).at(ir::Axis::ep))] += result.work[r].expert_rows;
  const auto none = [](const std::vector<double>& rows) {
    return std::all_of(rows.begin(), rows.end(), [](double n) { return n <= 0; });
  };
  if (none(routed) || none(computed)) return std::nullopt;
  return FullestRank{most_over_mean(routed), most_over_mean(computed)};
}

}  // namespace heddle::session
