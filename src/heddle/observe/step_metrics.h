// The figures of one training step, and the one table of their names that every writer and reader goes by.
//
// A figure that was not measured is empty; one that was measured and is not a number stays NaN, for a diverged loss
// must be seen. Units are in the names. `expert_loads_LE` [layer][expert] counts routed tokens; it is filled on the
// steps for which it was asked.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace heddle::observe {

struct StepMetrics {
  int64_t step = 0;
  double wall_time_s = 0;  // seconds since 1970
  std::optional<double> lm_loss;
  std::optional<double> auxiliary_loss;
  std::optional<double> mtp_loss;
  std::optional<double> held_out_loss;
  std::optional<double> learning_rate;
  std::optional<double> gradient_norm;
  std::optional<double> step_s;
  std::optional<double> trained_s;  // spent in steps since the run began
  std::optional<double> tokens;     // seen since the run began
  std::optional<double> tokens_per_s;
  std::optional<double> flops_per_s;       // model FLOPs, recompute not counted
  std::optional<double> expert_imbalance;  // max load over mean load, the worst layer
  std::optional<double> arena_live_peak_bytes;
  std::optional<double> arena_reserved_peak_bytes;
  std::string weights_digest;  // after the step; "": not taken
  std::string alarm;           // what is slow now, in a few words, for whoever watches; not logged
  std::map<std::string, double> extra;
  std::vector<std::vector<double>> expert_loads_LE;
};

struct MetricField {
  std::string_view key;  // in the log
  std::string_view tag;  // in TensorBoard, grouped by what stands before the slash
  std::optional<double> StepMetrics::*value;
};

/// All optional figures, in the order in which they are written.
std::span<const MetricField> metric_fields();

}  // namespace heddle::observe
