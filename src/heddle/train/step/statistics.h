// The statistics of a step (model/statistic.h), from the ranks' programs to values of the whole job. They stand
// side by side in one row of numbers that the ranks add up.
#pragma once

#include <span>
#include <vector>

#include "heddle/plan/plan.h"
#include "heddle/runtime/executor.h"
#include "heddle/train/step/reading.h"

namespace heddle::train {

class StepStatistics {
 public:
  /// Takes those of some listings of the program; statistics that mean the same have one place.
  StepStatistics(const plan::Lowered& lowered, int first_listing, int listings);

  /// The row of a rank that has run `listing`, with zeros where another rank's are.
  std::vector<double> row(const runtime::Executor& executor, int listing) const;
  /// The largest number of those statistics of `listing` that are no sums; 0 without any.
  double largest(const runtime::Executor& executor, int listing) const;
  /// Reads the sum of all ranks' rows, in the order of the listings and of their texts.
  std::vector<Reading> read(std::span<const double> row, std::span<const double> scales, int ranks) const;

 private:
  struct Place {
    model::Statistic what;
    int listing = 0;
    size_t first = 0, size = 0;  // place in the row
    bool again = false;          // an earlier place means the same
  };
  std::vector<Place> places_;
  std::vector<std::pair<int, ir::ValueId>> largest_;  // by listing
  size_t size_ = 0;
};

}  // namespace heddle::train
