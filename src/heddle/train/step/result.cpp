#include "heddle/train/step/result.h"

#include <algorithm>
#include <numeric>

namespace heddle::train {

namespace {

constexpr size_t kFigures = 9;  // numbers of RankFigures

}  // namespace

double StepResult::total(const model::StatisticKind& kind) const {
  double sum = 0;
  for (const Reading& reading : statistics) {
    if (reading.kind != &kind) continue;
    for (const double value : reading.values) sum += value;
  }
  return sum;
}

double StepResult::loss() const {
  double sum = 0;
  for (const Reading& reading : statistics) {
    if (reading.kind->objective) sum += reading.values.at(0);
  }
  return sum;
}

std::vector<double> StepResult::depth_losses() const {
  std::vector<double> losses;
  for (const Reading& reading : statistics) {
    if (reading.kind == &model::kDepthLoss) losses.push_back(reading.values.at(0));
  }
  return losses;
}

std::vector<StepResult::Load> StepResult::loads() const {
  std::vector<Load> loads;
  for (const Reading& reading : statistics) {
    if (reading.kind == &model::kLoad) loads.push_back({reading.of, reading.values});
  }
  std::sort(loads.begin(), loads.end(), [](const Load& a, const Load& b) { return a.layer < b.layer; });
  return loads;
}

std::vector<StepResult::Dropped> StepResult::dropped() const {
  std::vector<Dropped> shares;
  for (const Load& load : loads()) {
    const double rows = std::accumulate(load.rows_E.begin(), load.rows_E.end(), 0.0);
    for (const Reading& reading : statistics) {
      if (reading.kind != &model::kDropped || reading.of != load.layer) continue;
      shares.push_back({load.layer, rows > 0 ? reading.values.at(0) / rows : 0});
    }
  }
  return shares;
}

double StepResult::imbalance() const {
  double worst = 1;
  for (const Load& load : loads()) {
    double sum = 0, most = 0;
    for (const double rows : load.rows_E) {
      sum += rows;
      most = std::max(most, rows);
    }
    if (sum > 0) worst = std::max(worst, most * static_cast<double>(load.rows_E.size()) / sum);
  }
  return worst;
}

void append(std::vector<double>& row, const RankFigures& own, int rank, int ranks) {
  for (int r = 0; r < ranks; ++r) {
    const RankFigures& figures = r == rank ? own : RankFigures();
    row.push_back(figures.seconds);
    row.push_back(static_cast<double>(figures.peak_live_bytes));
    row.push_back(static_cast<double>(figures.reserved_bytes));
    row.push_back(static_cast<double>(figures.grown_bytes));
    const RankWork& work = figures.work;
    row.insert(row.end(), {work.forward_s, work.backward_s, work.update_s, work.experts_s, work.expert_rows});
  }
}

void take_figures(StepResult& result, std::span<const double> figures) {
  for (size_t i = 0; i + kFigures <= figures.size(); i += kFigures) {
    const auto bytes = [&](size_t at) { return static_cast<int64_t>(figures[i + at]); };
    result.seconds = std::max(result.seconds, figures[i]);
    result.peak_live_bytes = std::max(result.peak_live_bytes, bytes(1));
    result.reserved_bytes = std::max(result.reserved_bytes, bytes(2));
    result.work.push_back({figures[i + 4], figures[i + 5], figures[i + 6], figures[i + 7], figures[i + 8]});
    if (bytes(3) <= result.grown_bytes) continue;
    result.grown_bytes = bytes(3);
    result.grown_rank = static_cast<int>(i / kFigures);
  }
}

}  // namespace heddle::train
