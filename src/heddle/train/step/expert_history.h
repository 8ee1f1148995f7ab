// What a run knows of its experts' load, by which copies of hot ones are chosen before a step begins: the rows of
// the last steps, each counting half as much as the one after it, and of each layer whether its load is uneven
// enough to be worth copies. Of loads that are the same on all ranks, so it is, too; it stands in checkpoints, and
// knows nothing of a layout but how many ranks share the experts.
#pragma once

#include <map>
#include <vector>

#include "heddle/train/step/result.h"

namespace heddle::train {

struct ExpertHistory {
  struct Layer {
    std::vector<double> rows_E;
    bool uneven = false;
    bool operator==(const Layer&) const = default;
  };
  std::map<int, Layer> layers;
  bool operator==(const ExpertHistory&) const = default;

  /// A layer becomes uneven where the fullest of the ranks that share its experts has more than kUneven of the
  /// mean, and even again below kEven: between them it stays what it was.
  static constexpr double kUneven = 1.125, kEven = 1.03125;
  /// Of a step, in their order.
  void learn(const std::vector<StepResult::Load>& loads, int64_t holders, const ExpertHomes& homes = {});
  /// Of the uneven layers, for device::Batch.
  std::map<int, std::vector<double>> uneven_rows() const;
};

}  // namespace heddle::train
