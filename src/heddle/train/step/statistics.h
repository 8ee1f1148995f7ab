// The statistics of a step (model/statistic.h), from where the ranks' programs leave them to what they say of the
// whole job: side by side in one row of numbers that the ranks add up.
#pragma once

#include <span>
#include <vector>

#include "heddle/device/batch.h"
#include "heddle/plan/plan.h"
#include "heddle/runtime/executor.h"

namespace heddle::train {

/// A statistic of the whole job. Of a loss it is the mean: over labels, over sequences (auxiliary), over tokens
/// (z), before the weight that it has in the step's loss.
struct Reading {
  const model::StatisticKind* kind = nullptr;
  int of = -1;  // the layer, or the depth
  std::vector<double> values;
};

class StepStatistics {
 public:
  /// Those of some listings of the program; what means the same has one place.
  StepStatistics(const plan::Lowered& lowered, int first_listing, int listings);

  /// The row of a rank that has run `listing`, with zeros where another rank's are.
  std::vector<double> row(const runtime::Executor& executor, int listing) const;
  /// Puts a number that is known late into the row of a rank that has run `listing`.
  void set(std::vector<double>& row, int listing, const model::StatisticKind& kind, double value) const;
  /// What the sum of all ranks' rows says, in the order of the listings and of their texts.
  std::vector<Reading> read(std::span<const double> row, const device::Batch& batch, int ranks) const;

 private:
  struct Place {
    model::Statistic what;
    int listing = 0;
    size_t first = 0, size = 0;  // in the row
    bool again = false;          // an earlier place means the same
  };
  std::vector<Place> places_;
  size_t size_ = 0;
};

}  // namespace heddle::train
