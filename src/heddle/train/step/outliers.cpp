#include "heddle/train/step/outliers.h"

#include <utility>

#include "heddle/base/statistics.h"

namespace heddle::train {

namespace {

void remember(std::vector<double>& recent, double value, int64_t window) {
  recent.push_back(value);
  if (std::ssize(recent) > window) recent.erase(recent.begin(), recent.end() - window);
}

double limit(double times, const std::vector<double>& recent, int64_t window) {
  if (times <= 0 || std::ssize(recent) < window) return std::numeric_limits<double>::infinity();
  return times * median({recent.end() - window, recent.end()});
}

}  // namespace

StepLimits Outliers::limits() const {
  return {limit(rule_.skip_norm_above, history_.norms, window_),
          limit(rule_.skip_loss_above, history_.losses, window_)};
}

void Outliers::learn(double norm, double loss, bool skipped) {
  if (skipped) {
    ++history_.left_out;
    ++history_.skipped;
    ++history_.in_a_row;
    return;
  }
  history_.in_a_row = 0;
  remember(history_.norms, norm, window_);
  remember(history_.losses, loss, window_);
}

OutlierHistory gone_back(OutlierHistory then, const OutlierHistory& now, int64_t steps) {
  then.left_out += steps;
  then.skipped = now.skipped;
  then.in_a_row = 0;
  then.gone_back = now.gone_back + 1;
  return then;
}

}  // namespace heddle::train
