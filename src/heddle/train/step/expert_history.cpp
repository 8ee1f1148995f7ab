#include "heddle/train/step/expert_history.h"

#include <algorithm>
#include <numeric>

namespace heddle::train {

namespace {

double imbalance_of(const std::vector<double>& rows_E, int64_t holders, int layer, const ExpertHomes& homes) {
  const int64_t each = std::ssize(rows_E) / holders;
  std::vector<double> rows_H(static_cast<size_t>(holders), 0);
  for (int64_t e = 0; e < std::ssize(rows_E); ++e)
    rows_H[static_cast<size_t>(homes.of(layer, e) / each)] += rows_E[static_cast<size_t>(e)];
  const double all = std::accumulate(rows_H.begin(), rows_H.end(), 0.0);
  return all > 0 ? *std::max_element(rows_H.begin(), rows_H.end()) * static_cast<double>(holders) / all : 1;
}

}  // namespace

void ExpertHistory::learn(const std::vector<StepResult::Load>& loads, int64_t holders, const ExpertHomes& homes) {
  for (const StepResult::Load& load : loads) {
    Layer& layer = layers[load.layer];
    if (layer.rows_E.size() != load.rows_E.size()) layer.rows_E.assign(load.rows_E.begin(), load.rows_E.end());
    for (size_t e = 0; e < load.rows_E.size(); ++e) layer.rows_E[e] = (layer.rows_E[e] + load.rows_E[e]) / 2;
    const double imbalance = imbalance_of(layer.rows_E, holders, load.layer, homes);
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
