// Which steps are left out: those whose gradient norm or loss lies far above the median of recent ones, or is not
// finite. The host says how far a step may go before it begins; the program decides once the norm is known (the op
// skip_outlier), so that all ranks decide alike. A run whose steps are all taken still knows which an earlier part
// of it has left out.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "heddle/passes/options/optimizer.h"
#include "heddle/train/controllers/controllers.h"

namespace heddle::train {

/// The steps of a run as it judges outliers.
struct OutlierHistory {
  std::vector<double> norms, losses;  // the last steps that were applied, the oldest first
  int64_t left_out = 0;        // steps done whose updates the weights don't have: skipped, or gone back behind
  int64_t skipped = 0;         // since the run began
  int64_t in_a_row = 0;        // skipped since the last that was applied
  int64_t rolled_back_to = 0;  // times
  bool operator==(const OutlierHistory&) const = default;
};

/// The largest norm and the largest mean loss of a step that is applied.
struct StepLimits {
  double norm = std::numeric_limits<double>::infinity(), loss = std::numeric_limits<double>::infinity();
};

class Outliers : public Controller {
 public:
  explicit Outliers(const ControllerContext& context);
  /// `window`: applied steps that must be known before any is an outlier.
  Outliers(const passes::Optimizer& rule, int64_t window) : rule_(rule), window_(window) {}
  static void check(const nlohmann::json& state, const CheckpointState& of, const std::string& place);

  void before(const NextStep& step, device::Inputs& inputs) override;
  void after(const Readings& step, observe::Figures& figures) override;
  nlohmann::json state() const override;
  void restore(const nlohmann::json& state) override;

  StepLimits limits() const;
  /// Limits by which the last step was judged.
  const StepLimits& judged_by() const { return judged_by_; }
  /// Learns from a step; steps come in their order.
  void learn(double norm, double loss, bool skipped);
  const OutlierHistory& history() const { return history_; }
  void set_history(OutlierHistory history) { history_ = std::move(history); }

 private:
  passes::Optimizer rule_;
  int64_t window_;
  OutlierHistory history_;
  StepLimits judged_by_;
};

/// The history of a run that goes back to where it was `then`, `steps` before `now`, and on without those steps.
OutlierHistory rolled_back_to(OutlierHistory then, const OutlierHistory& now, int64_t steps);

}  // namespace heddle::train
