#include "heddle/train/controllers/outliers.h"

#include <array>
#include <nlohmann/json.hpp>

#include "heddle/base/error.h"
#include "heddle/base/statistics.h"
#include "heddle/model/loss_scale.h"
#include "heddle/train/checkpoint.h"
#include "heddle/train/step/result.h"
#include "heddle/train/trainer_options.h"

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

OutlierHistory outliers_from(const nlohmann::json& state) {
  OutlierHistory h;
  state.at("norms").get_to(h.norms);
  state.at("losses").get_to(h.losses);
  state.at("left_out").get_to(h.left_out);
  state.at("skipped").get_to(h.skipped);
  state.at("in_a_row").get_to(h.in_a_row);
  state.at("gone_back").get_to(h.rolled_back_to);
  return h;
}

}  // namespace

Outliers::Outliers(const ControllerContext& context)
    : Outliers(context.options.plan.update, context.options.outlier_window) {}

void Outliers::check(const nlohmann::json& state, const CheckpointState& of, const std::string& place) {
  const OutlierHistory h = outliers_from(state);
  if (h.left_out < 0 || h.left_out > of.step || h.in_a_row < 0 || h.skipped < 0) {
    config_error("{}: {} of {} steps left out, {} skipped, {} in a row", place, h.left_out, of.step, h.skipped,
                 h.in_a_row);
  }
}

void Outliers::before(const NextStep& step, device::Inputs& inputs) {
  judged_by_ = limits();
  if (!rule_.skips_outliers()) return;
  const double scale = step.scales[model::kScaleNextToken];
  inputs.set("limits", std::array{judged_by_.norm,
                                  scale > 0 ? judged_by_.loss / scale : std::numeric_limits<double>::infinity()});
}

void Outliers::after(const Readings& step, observe::Figures& /*figures*/) {
  if (rule_.skips_outliers()) learn(step.gradient_norm, step.result.loss(), step.result.is_skipped());
}

nlohmann::json Outliers::state() const {
  if (history_ == OutlierHistory()) return nullptr;
  return {{"norms", history_.norms},     {"losses", history_.losses},     {"left_out", history_.left_out},
          {"skipped", history_.skipped}, {"in_a_row", history_.in_a_row}, {"gone_back", history_.rolled_back_to}};
}

void Outliers::restore(const nlohmann::json& state) {
  history_ = state.is_null() ? OutlierHistory() : outliers_from(state);
}

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

OutlierHistory rolled_back_to(OutlierHistory then, const OutlierHistory& now, int64_t steps) {
  then.left_out += steps;
  then.skipped = now.skipped;
  then.in_a_row = 0;
  then.rolled_back_to = now.rolled_back_to + 1;
  return then;
}

}  // namespace heddle::train
