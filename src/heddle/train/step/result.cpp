#include "heddle/train/step/result.h"

#include <algorithm>
#include <numeric>

namespace heddle::train {

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

double StepResult::second_rounds() const {
  double rounds = 0;
  for (const Reading& reading : statistics) rounds += reading.kind == &model::kBeyond ? reading.values.at(0) : 0;
  return rounds;
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

}  // namespace heddle::train
