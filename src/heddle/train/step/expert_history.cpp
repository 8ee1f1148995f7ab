#include "heddle/train/step/expert_history.h"

#include <algorithm>
#include <numeric>

namespace heddle::train {

namespace {

double imbalance_of(const std::vector<double>& rows_E, int64_t holders) {
  const auto each = static_cast<std::ptrdiff_t>(std::ssize(rows_E) / holders);
  double most = 0, all = 0;
  for (auto first = rows_E.begin(); first != rows_E.end(); first += each) {
    const double rows = std::accumulate(first, first + each, 0.0);
    most = std::max(most, rows);
    all += rows;
  }
  return all > 0 ? most * static_cast<double>(holders) / all : 1;
}

}  // namespace

void ExpertHistory::learn(const std::vector<StepResult::Load>& loads, int64_t holders) {
  for (const StepResult::Load& load : loads) {
    Layer& layer = layers[load.layer];
    if (layer.rows_E.size() != load.rows_E.size()) layer.rows_E.assign(load.rows_E.begin(), load.rows_E.end());
    for (size_t e = 0; e < load.rows_E.size(); ++e) layer.rows_E[e] = (layer.rows_E[e] + load.rows_E[e]) / 2;
    const double imbalance = imbalance_of(layer.rows_E, holders);
    layer.uneven = layer.uneven ? imbalance >= kEven : imbalance > kUneven;
  }
}

std::map<int, std::vector<double>> ExpertHistory::uneven_rows() const {
  std::map<int, std::vector<double>> rows;
  for (const auto& [number, layer] : layers) {
    if (layer.uneven) rows[number] = layer.rows_E;
  }
  return rows;
}

}  // namespace heddle::train
