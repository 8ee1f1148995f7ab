// Which steps are left out: those whose gradient norm or loss lies far above the median of recent ones, or is not
// finite. The host says how far a step may go before it begins; the program decides once the norm is known (the op
// skip_outlier), so that all ranks decide alike.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "heddle/passes/update/update.h"

namespace heddle::train {

/// What a run knows of its steps; it stands in checkpoints.
struct OutlierHistory {
  std::vector<double> norms, losses;  // of the last steps that were applied, the oldest first
  int64_t left_out = 0;   // steps done whose updates the weights don't have: skipped, or gone back behind
  int64_t skipped = 0;    // since the run began
  int64_t in_a_row = 0;   // skipped since the last that was applied
  int64_t gone_back = 0;  // times
  bool operator==(const OutlierHistory&) const = default;
};

/// The largest norm and the largest mean loss of a step that is applied.
struct StepLimits {
  double norm = std::numeric_limits<double>::infinity(), loss = std::numeric_limits<double>::infinity();
};

class Outliers {
 public:
  /// `window`: applied steps that must be known before any is an outlier.
  Outliers(const passes::Optimizer& rule, int64_t window) : rule_(rule), window_(window) {}

  StepLimits limits() const;
  /// Of a step, in their order.
  void learn(double norm, double loss, bool skipped);
  const OutlierHistory& history() const { return history_; }
  void set_history(OutlierHistory history) { history_ = std::move(history); }

 private:
  passes::Optimizer rule_;
  int64_t window_;
  OutlierHistory history_;
};

/// Of a run that goes back to where it was `then`, `steps` before `now`, and on from there without those steps.
OutlierHistory gone_back(OutlierHistory then, const OutlierHistory& now, int64_t steps);

}  // namespace heddle::train
