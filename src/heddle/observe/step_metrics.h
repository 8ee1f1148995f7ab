// The figures of one training step, and the one table of their names that every writer and reader goes by.
//
// A figure that was not measured is empty; one that was measured and is not a number stays NaN, for a diverged loss
// must be seen. Units are in the names. `expert_loads_LE` [layer][expert] counts routed tokens, `copies_L` tells of
// the same layers; both are filled in the steps that have_layers says.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace heddle::observe {

/// What copies of hot experts came to: in a layer, a step or a run.
struct CopyFigures {
  double rows = 0;             // that copies took
  double crossings_saved = 0;  // of rows between nodes, one by one
  double weight_bytes = 0, gradient_bytes = 0;
  /// How many choices, each of a microbatch, a layer and a group of ranks, ended so: with copies by the
  /// microbatch's counts, or by the loads of the last steps; without, for the load was even, or for none would have
  /// paid.
  double by_counts = 0, by_history = 0, even = 0, not_worth = 0;
  bool operator==(const CopyFigures&) const = default;
};

struct LayerCopies {
  std::vector<double> routed_H,
      computed_H;  // rows of each of the ranks that share experts, without and with copies
  CopyFigures figures;
  bool operator==(const LayerCopies&) const = default;
};

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
  std::optional<double> copy_rows, copy_crossings_saved, copy_weight_bytes, copy_gradient_bytes;  // CopyFigures,
  std::optional<double> copies_by_counts, copies_by_history, copies_even, copies_not_worth;       // of all layers
  std::optional<double> arena_live_peak_bytes;
  std::optional<double> arena_reserved_peak_bytes;
  std::string weights_digest;  // after the step; "": not taken
  std::string alarm;           // what is slow now, in a few words, for whoever watches; not logged
  std::map<std::string, double> extra;
  std::vector<std::vector<double>> expert_loads_LE;
  std::vector<LayerCopies> copies_L;
};

struct MetricField {
  std::string_view key;  // in the log
  std::string_view tag;  // in TensorBoard, grouped by what stands before the slash
  std::optional<double> StepMetrics::*value;
};

/// All optional figures, in the order in which they are written.
std::span<const MetricField> metric_fields();

/// The figures of copies: what each is called in the log, in a layer's and in the step's place.
struct CopyField {
  std::string_view key;
  double CopyFigures::*of_layer;
  std::optional<double> StepMetrics::*of_step;
};
std::span<const CopyField> copy_fields();

/// Whether the log has a step's figures of layers, `numbers` of them: in every step, but where there are very many,
/// in so few that they don't make up most of what is written.
bool have_layers(int64_t step, size_t numbers);

/// Puts what the layers come to into the step's own figures.
void add_copies(StepMetrics& metrics);

}  // namespace heddle::observe
