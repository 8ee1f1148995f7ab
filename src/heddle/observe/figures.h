// Figures of a step or a run: one row each, the table of them, and their values in one step.
//
// A row says what a number is called, its unit and meaning, how the run's number comes from those of its steps, and
// where it is shown. Every output walks the table: the log, TensorBoard, MLflow, Prometheus, the terminal's line,
// `heddle watch`, the report's cards, curves and facts, the summary and its JSON. So a further figure is a row here
// with its name in kRows, and the line that sets it:
//
//   metrics.set(figures::kGradientNorm, norm);
//
// Most rows have one number a step. A family has one for each layer or channel (`each`): "{}" in its key is which.
// A row with a `list` has a number for each expert or rank, in each MoE layer (Figures::layers).
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "heddle/base/words.h"

namespace heddle::observe {

// clang-format off
enum class Unit : uint8_t {
  plain, nats, seconds, bytes, tokens, count, tokens_per_s, flops_per_s, over_mean, share, step_size
};
constexpr auto words_of(Unit) {
  return std::to_array<Word<Unit>>({
      {Unit::plain, "none"}, {Unit::nats, "nats a token"}, {Unit::seconds, "s"}, {Unit::bytes, "bytes"},
      {Unit::tokens, "tokens"}, {Unit::count, "a count"}, {Unit::tokens_per_s, "tokens/s"},
      {Unit::flops_per_s, "FLOP/s"}, {Unit::over_mean, "times the mean"}, {Unit::share, "share, 0 to 1"},
      {Unit::step_size, "step size"}});
}
// clang-format on

/// Rule by which the run's number comes from those of its steps.
enum class OverSteps : uint8_t {
  none,          // the run has none, or sets it itself
  last,          // the last step's that has it
  sum,           // over all steps that have it
  median,        // over those that are finite
  worst,         // the largest
  recent,        // the mean of the last fiftieth of the steps, of those that are finite
  step_of_last,  // the number of the last step that has it
};
constexpr auto words_of(OverSteps) {
  return std::to_array<Word<OverSteps>>({{OverSteps::none, "-"},
                                         {OverSteps::last, "last"},
                                         {OverSteps::sum, "sum"},
                                         {OverSteps::median, "median"},
                                         {OverSteps::worst, "largest"},
                                         {OverSteps::recent, "mean of the last 2 %"},
                                         {OverSteps::step_of_last, "step of the last"}});
}

/// The place of the number in a step's line of the log.
enum class Logged : uint8_t { top, extra, layers, never };

/// Figures that are reported together: one object in the run's JSON, one table in its report, one line in the
/// terminal.
struct FigureGroup {
  std::string_view key;
  std::string_view title;
};

/// A chart of the report: curves of the rows that name it, over the steps.
struct FigureChart {
  enum class Section : uint8_t { learning, speed, experts, copies };
  Section section;
  std::string_view title;
  std::string_view of;  // the meaning of its numbers, above the axis
  double from =
      std::numeric_limits<double>::quiet_NaN();  // the axis shows this value; NaN: whatever the curves have
  bool drops_zeros = false;                      // a curve that is zero throughout is left out
};

struct Figure {
  std::string_view key;      // in the log and in MLflow; behind heddle_ in Prometheus
  std::string_view meaning;  // in the reference and in Prometheus
  Unit unit = Unit::plain;
  Logged logged = Logged::top;
  std::string_view tag = "";   // in TensorBoard, grouped by the part before the slash; "": extra/KEY
  std::string_view each = "";  // the meaning of "{}" in a family's key
  std::string_view list = "";  // the owners of the numbers in a list
  std::string_view was = "";   // its key in logs of earlier versions

  OverSteps over_steps = OverSteps::none;
  const Figure* of = nullptr;    // the row whose steps it is over; null: its own
  std::string_view in_run = "";  // its name in the run's JSON, within its group; "": it is not there
  const FigureGroup* group = nullptr;

  /// Place in the terminal's line, in the order of the rows. Those of the highest rank are left out first.
  struct Line {
    int rank = -1;  // -1: it is not there
    std::string_view word = "";
    std::string_view colour = "";  // an escape sequence
  } line;
  /// Chart in `heddle watch`, of so many rows of text.
  struct Watched {
    std::string_view title = "";
    int rows = 0;
  } watched;
  std::string_view column = "";  // in `heddle report`, the heading of its column
  struct Card {
    std::string_view title = "", note = "";
  } card;
  /// Among the report's facts, in `heddle watch`, and with a group in the terminal's summary.
  struct Fact {
    std::string_view name = "";
    std::string_view words = "";     // facts of one name are one text: "3 with copies; 2 without". "": it is alone
    std::string_view if_below = "";  // the name of a number below 0, which is shown without its sign
  } fact;
  struct Curve {
    const FigureChart* chart = nullptr;
    std::string_view label = "";
    int colour = 0;
    enum class Style : uint8_t { noisy, plain, points } style = Style::noisy;  // noisy: with its running mean
  } curve;
};

namespace figures {

// clang-format off
inline constexpr FigureGroup kCopies{"copies", "Replicas of hot experts"};
inline constexpr FigureGroup kMoves{"moves", "Experts that changed ranks"};
inline constexpr const FigureGroup* kGroups[] = {&kCopies, &kMoves};

using Section = FigureChart::Section;
using Style = Figure::Curve::Style;
inline constexpr FigureChart kLossChart{.section = Section::learning, .title = "Loss", .of = "nats a token"};
inline constexpr FigureChart kRateChart{.section = Section::learning, .title = "Learning rate", .of = "step size",
    .from = 0};
inline constexpr FigureChart kNormChart{.section = Section::learning, .title = "Gradient norm", .of = "before clipping",
    .from = 0};
inline constexpr FigureChart kSpeedChart{.section = Section::speed, .title = "Tokens per second", .of = "tok/s",
    .from = 0};
inline constexpr FigureChart kFlopsChart{.section = Section::speed, .title = "Model FLOP/s",
    .of = "FLOP/s, recompute not counted", .from = 0};
inline constexpr FigureChart kImbalanceChart{.section = Section::experts, .title = "Imbalance: busiest expert ÷ mean",
    .of = "rows ÷ mean, the worst layer; 1 is an even load", .from = 1};
inline constexpr FigureChart kAuxiliaryChart{.section = Section::experts, .title = "Auxiliary (balance) loss",
    .of = "nats a token"};
inline constexpr FigureChart kDroppedChart{.section = Section::experts,
    .title = "Choices dropped: beyond their expert's capacity", .of = "part of the layer's choices"};
inline constexpr FigureChart kFullestChart{.section = Section::copies,
    .title = "Fullest rank ÷ mean: as routed, and with replicas of hot experts",
    .of = "rows ÷ mean, all layers; 1 is an even load", .from = 1};
inline constexpr FigureChart kChoicesChart{.section = Section::copies, .title = "Choices of replicas, by their outcome",
    .of = "choices a step", .from = 0, .drops_zeros = true};
inline constexpr FigureChart kReplicaRowsChart{.section = Section::copies,
    .title = "Rows that replicas took, and that they kept from crossing nodes", .of = "rows a step", .from = 0,
    .drops_zeros = true};
inline constexpr FigureChart kReplicaBytesChart{.section = Section::copies, .title = "Bytes of replicas",
    .of = "bytes a step", .from = 0, .drops_zeros = true};
inline constexpr const FigureChart* kCharts[] = {
    &kLossChart, &kRateChart, &kNormChart, &kSpeedChart, &kFlopsChart, &kImbalanceChart, &kAuxiliaryChart,
    &kDroppedChart, &kFullestChart, &kChoicesChart, &kReplicaRowsChart, &kReplicaBytesChart};

// A row that is logged and not shown.
constexpr Figure in_extra(std::string_view key, Unit unit, std::string_view meaning) {
  return {.key = key, .meaning = meaning, .unit = unit, .logged = Logged::extra};
}

inline constexpr std::string_view kBold = "\x1b[1m", kGreen = "\x1b[32m";

// The loss and what the step is about.
inline constexpr Figure kTokens{.key = "tokens", .meaning = "Tokens seen since the run began.", .unit = Unit::tokens,
    .tag = "speed/tokens", .over_steps = OverSteps::last, .in_run = "tokens", .column = "tokens"};
inline constexpr Figure kLoss{.key = "lm_loss", .meaning = "The loss that the step is about.", .unit = Unit::nats,
    .tag = "loss/lm", .over_steps = OverSteps::last, .in_run = "loss", .line = {0, "loss", kBold},
    .watched = {"loss", 12}, .card = {"Loss of the last step"}, .curve = {&kLossChart, "language model", 0}};
inline constexpr Figure kRecentLoss{.key = "recent_loss", .meaning = "The mean loss of the last fiftieth of the steps.",
    .unit = Unit::nats, .logged = Logged::never, .over_steps = OverSteps::recent, .of = &kLoss, .in_run = "recent_loss",
    .column = "loss"};
inline constexpr Figure kAuxiliaryLoss{.key = "auxiliary_loss",
    .meaning = "The balance losses of the routers, as they enter the sum.", .unit = Unit::nats, .tag = "loss/auxiliary",
    .curve = {&kAuxiliaryChart, "Auxiliary (balance) loss", 5}};
inline constexpr Figure kDepthLoss{.key = "mtp_loss", .meaning = "The loss of further tokens, a mean over the depths.",
    .unit = Unit::nats, .tag = "loss/mtp", .curve = {&kLossChart, "multi-token prediction", 3}};
inline constexpr Figure kHeldOutLoss{.key = "held_out_loss",
    .meaning = "The loss of held-out text, in steps that evaluate.", .unit = Unit::nats, .tag = "loss/held_out",
    .over_steps = OverSteps::last, .in_run = "held_out_loss", .line = {4, "held-out"}, .column = "held-out",
    .card = {"Held-out loss"}, .curve = {&kLossChart, "held-out", 1, Style::points}};
inline constexpr Figure kHeldOutStep{.key = "held_out_step", .meaning = "The last step that evaluated.",
    .unit = Unit::count, .logged = Logged::never, .over_steps = OverSteps::step_of_last, .of = &kHeldOutLoss};
inline constexpr Figure kHeldOutRewardMargin =
    in_extra("held_out_reward_margin", Unit::plain, "Margin of the preferred answer's reward, over held-out pairs.");
inline constexpr Figure kHeldOutRewardAccuracy =
    in_extra("held_out_reward_accuracy", Unit::share, "Share of held-out pairs whose preferred answer has the higher reward.");
inline constexpr Figure kRewardChosen = in_extra("reward_chosen", Unit::plain, "The mean reward of preferred answers.");
inline constexpr Figure kRewardRejected =
    in_extra("reward_rejected", Unit::plain, "The mean reward of rejected answers.");
inline constexpr Figure kRewardMargin =
    in_extra("reward_margin", Unit::plain, "Margin of the preferred answer's reward.");
inline constexpr Figure kRewardAccuracy =
    in_extra("reward_accuracy", Unit::share, "Share of pairs whose preferred answer has the higher reward.");
inline constexpr Figure kLogitZLoss =
    in_extra("logit_z_loss", Unit::nats, "The z-loss of the logits, as it enters the sum.");
inline constexpr Figure kZLoss = in_extra("z_loss", Unit::nats, "The z-loss of the routers, as it enters the sum.");
inline constexpr Figure kIndexLoss = in_extra("index_loss", Unit::nats,
    "The divergence of the indexers' choice from attention, summed over the layers, as it enters the sum.");
inline constexpr Figure kMaxLogit = in_extra("max_logit", Unit::plain,
    "The largest attention logit of all heads; where it is at most train.qk_clip, the largest log-sum-exp, a bound of it.");

// The update.
inline constexpr Figure kLearningRate{.key = "learning_rate", .meaning = "The step size of the update.",
    .unit = Unit::step_size, .tag = "optimizer/learning_rate", .line = {5, "lr"},
    .curve = {&kRateChart, "Learning rate", 2, Style::plain}};
inline constexpr Figure kGradientNorm{.key = "gradient_norm",
    .meaning = "The norm of the gradient before it is clipped.", .tag = "optimizer/gradient_norm", .line = {3, "grad"},
    .curve = {&kNormChart, "Gradient norm", 4}};
inline constexpr Figure kSkippedSteps{.key = "skipped_steps",
    .meaning = "Steps left out as outliers since the run began.", .unit = Unit::count, .logged = Logged::extra,
    .over_steps = OverSteps::last, .in_run = "skipped_steps", .fact = {"steps left out as outliers"}};
inline constexpr Figure kRolledBack{.key = "rolled_back",
    .meaning = "Number of times that the run returned to a checkpoint for outliers.", .unit = Unit::count,
    .logged = Logged::extra, .over_steps = OverSteps::last, .in_run = "rolled_back",
    .fact = {"times rolled back for outliers"}};
inline constexpr Figure kEpoch = in_extra("epoch", Unit::plain, "Passes over the training text so far.");
inline constexpr Figure kBatch = in_extra("batch", Unit::count, "Sequences of the step, where their number rises.");
inline constexpr Figure kCheckpointEvery =
    in_extra("checkpoint_every", Unit::count, "Steps from one checkpoint to the next, where the run chooses.");
inline constexpr Figure kSnapshotEvery =
    in_extra("snapshot_every", Unit::count, "Steps from one snapshot in memory to the next, where the run chooses.");

// Speed.
inline constexpr Figure kStepSeconds{.key = "step_s", .meaning = "The step's time on the slowest rank.",
    .unit = Unit::seconds, .tag = "speed/step_s", .over_steps = OverSteps::median, .in_run = "step_s",
    .column = "a step"};
inline constexpr Figure kTokensPerSecond{.key = "tokens_per_s",
    .meaning = "Tokens of the whole job over the step's time.", .unit = Unit::tokens_per_s, .tag = "speed/tokens_per_s",
    .over_steps = OverSteps::median, .in_run = "tokens_per_s", .line = {2, "", kGreen},
    .watched = {"tokens per second", 7}, .column = "speed", .card = {"Tokens per second", "median of the steps"},
    .curve = {&kSpeedChart, "Tokens per second", 2}};
inline constexpr Figure kFlopsPerSecond{.key = "flops_per_s",
    .meaning = "Model FLOPs of the whole job over the step's time, without recomputation.",
    .unit = Unit::flops_per_s, .tag = "speed/flops_per_s", .over_steps = OverSteps::median, .in_run = "flops_per_s",
    .line = {6, "", kGreen}, .column = "model", .card = {"Model FLOP/s", "median of the steps; recompute not counted"},
    .curve = {&kFlopsChart, "Model FLOP/s", 6}};
inline constexpr Figure kChannelSeconds{.key = "{}_seconds",
    .meaning = "Time that rank 0 spent in the channel's calls.", .unit = Unit::seconds, .logged = Logged::extra,
    .each = "channel"};
inline constexpr Figure kChannelBytes{.key = "{}_bytes", .meaning = "Bytes that rank 0 sent in the channel's calls.",
    .unit = Unit::bytes, .logged = Logged::extra, .each = "channel"};
inline constexpr Figure kHostStalls =
    in_extra("host_stalls", Unit::count, "Times that rank 0's host waited for counts of rows.");
inline constexpr Figure kSecondRounds = in_extra("second_rounds", Unit::count,
    "Times that a rank's rows of a layer and microbatch found no room, and a second round took them; of all ranks.");
inline constexpr Figure kEngineMessages =
    in_extra("engine_messages", Unit::count, "Messages that rank 0's copy engine moved.");
inline constexpr Figure kEngineBytes = in_extra("engine_bytes", Unit::bytes, "Bytes that rank 0's copy engine moved.");
inline constexpr Figure kEngineShortMessages =
    in_extra("engine_short_messages", Unit::count, "Messages too short for rank 0's copy engine.");
inline constexpr Figure kEngineShortBytes =
    in_extra("engine_short_bytes", Unit::bytes, "Bytes of messages too short for rank 0's copy engine.");
inline constexpr Figure kEngineFarMessages =
    in_extra("engine_far_messages", Unit::count, "Messages out of reach of rank 0's copy engine.");
inline constexpr Figure kEngineFarBytes =
    in_extra("engine_far_bytes", Unit::bytes, "Bytes of messages out of reach of rank 0's copy engine.");
inline constexpr Figure kSlowRanks =
    in_extra("slow_ranks", Unit::count, "Ranks that are slow now, where ranks are watched.");
inline constexpr Figure kSlowLinks =
    in_extra("slow_links", Unit::count, "Pairs of ranks whose link is slow now, where links were probed.");

// Memory.
inline constexpr Figure kArenaLivePeak{.key = "arena_live_peak_bytes",
    .meaning = "Most bytes in use in the arena, of the rank that holds most.", .unit = Unit::bytes,
    .tag = "memory/arena_live_peak_bytes", .over_steps = OverSteps::worst};
inline constexpr Figure kArenaReservedPeak{.key = "arena_reserved_peak_bytes",
    .meaning = "Most bytes that the arena took, of the rank that holds most.", .unit = Unit::bytes,
    .tag = "memory/arena_reserved_peak_bytes", .over_steps = OverSteps::worst, .in_run = "reserved_bytes",
    .line = {7, "peak"}, .column = "arena", .card = {"Peak memory"}};
inline constexpr Figure kPredictedReserved{.key = "predicted_reserved_bytes",
    .meaning = "Predicted size of the arena, of the rank that holds most.", .unit = Unit::bytes,
    .logged = Logged::never, .in_run = "predicted_reserved_bytes"};
inline constexpr Figure kGrownBeyondPrediction{.key = "grown_beyond_forecast_bytes",
    .meaning = "Growth of an arena beyond its prediction, of the arena that grew most.", .unit = Unit::bytes,
    .logged = Logged::extra, .was = "arena_beyond_forecast_bytes", .over_steps = OverSteps::worst,
    .in_run = "grown_beyond_forecast_bytes", .fact = {"arena beyond its prediction"}};

// Time of the run.
inline constexpr Figure kTrainedSeconds{.key = "trained_s", .meaning = "Time in steps since the run began.",
    .unit = Unit::seconds, .tag = "speed/trained_s", .over_steps = OverSteps::last, .in_run = "trained_seconds",
    .column = "in steps"};
inline constexpr Figure kElapsedSeconds{.key = "seconds",
    .meaning = "Time of this process, with evaluation, checkpoints and reports.", .unit = Unit::seconds,
    .logged = Logged::never, .in_run = "seconds"};
inline constexpr Figure kStepPredicted{.key = "step_foretold_seconds",
    .meaning = "A step's time as it was predicted when the plan was chosen.", .unit = Unit::seconds,
    .logged = Logged::never, .in_run = "step_foretold_seconds"};
inline constexpr Figure kFirstSteps{.key = "first_steps_seconds",
    .meaning = "The median time of the first steps, without the very first.", .unit = Unit::seconds,
    .logged = Logged::never, .in_run = "first_steps_seconds"};
inline constexpr Figure kStepRefitted{.key = "step_foretold_refitted_seconds",
    .meaning = "A step's time as it was predicted anew after the first steps.", .unit = Unit::seconds,
    .logged = Logged::never, .in_run = "step_foretold_refitted_seconds"};

// Experts.
inline constexpr Figure kImbalance{.key = "expert_imbalance",
    .meaning = "Rows of the fullest expert over the mean, of the worst layer.", .unit = Unit::over_mean,
    .tag = "experts/imbalance", .line = {8, "experts"},
    .curve = {&kImbalanceChart, "Imbalance: busiest expert ÷ mean", 1}};
inline constexpr Figure kExpertLoads{.key = "expert_loads", .meaning = "Rows routed to each expert.",
    .unit = Unit::count, .logged = Logged::layers, .list = "expert"};
inline constexpr Figure kBiasUpdateRate =
    in_extra("bias_update_rate", Unit::plain, "Distance by which the step moved the selection biases.");
inline constexpr Figure kDroppedShare{.key = "dropped_share.layer_{}",
    .meaning = "Share of the layer's choices that found no place.", .unit = Unit::share, .logged = Logged::extra,
    .each = "layer", .curve = {&kDroppedChart, "layer {}", 1, Style::plain}};
inline constexpr Figure kFullestRouted{.key = "fullest_rank_routed",
    .meaning = "Rows of the fullest rank over the mean, as the routers sent them.", .unit = Unit::over_mean,
    .logged = Logged::extra, .curve = {&kFullestChart, "as routed", 1, Style::plain}};
inline constexpr Figure kFullestWithReplicas{.key = "fullest_rank_with_copies",
    .meaning = "Rows of the fullest rank over the mean, as ranks computed them.", .unit = Unit::over_mean,
    .logged = Logged::extra, .curve = {&kFullestChart, "with copies", 2, Style::plain}};

// Replicas of hot experts, of all layers in a step, and of each layer.
inline constexpr Figure kRoutedRows{.key = "routed",
    .meaning = "Rows of each rank that shares experts, as the routers sent them.", .unit = Unit::count,
    .logged = Logged::layers, .list = "rank", .group = &kCopies};
inline constexpr Figure kComputedRows{.key = "computed",
    .meaning = "Rows of each rank that shares experts, as it computed them.", .unit = Unit::count,
    .logged = Logged::layers, .list = "rank", .group = &kCopies};
inline constexpr Figure kReplicaRows{.key = "copy_rows", .meaning = "Rows that replicas took.", .unit = Unit::count,
    .tag = "copies/rows", .over_steps = OverSteps::sum, .in_run = "rows", .group = &kCopies,
    .fact = {"rows that replicas took"}, .curve = {&kReplicaRowsChart, "taken", 2, Style::plain}};
inline constexpr Figure kReplicaCrossingsSaved{.key = "copy_crossings_saved",
    .meaning = "Rows that no longer cross nodes, counted one by one.", .unit = Unit::count,
    .tag = "copies/crossings_saved", .over_steps = OverSteps::sum, .in_run = "crossings_saved", .group = &kCopies,
    .fact = {"rows kept from crossing nodes", "", "rows more that crossed nodes"},
    .curve = {&kReplicaRowsChart, "kept on nodes", 3, Style::plain}};
inline constexpr Figure kReplicaWeightBytes{.key = "copy_weight_bytes",
    .meaning = "Bytes of weights that ranks received for replicas.", .unit = Unit::bytes, .tag = "copies/weight_bytes",
    .over_steps = OverSteps::sum, .in_run = "weight_bytes", .group = &kCopies, .fact = {"weights that replicas took"},
    .curve = {&kReplicaBytesChart, "weights", 0, Style::plain}};
inline constexpr Figure kReplicaGradientBytes{.key = "copy_gradient_bytes",
    .meaning = "Bytes of gradients that ranks returned for replicas.", .unit = Unit::bytes,
    .tag = "copies/gradient_bytes", .over_steps = OverSteps::sum, .in_run = "gradient_bytes", .group = &kCopies,
    .fact = {"gradients that replicas returned"}, .curve = {&kReplicaBytesChart, "gradients", 4, Style::plain}};
inline constexpr Figure kReplicasByCounts{.key = "copies_by_counts",
    .meaning = "Choices of a microbatch, a layer and a group of ranks that made replicas by the counts of rows.",
    .unit = Unit::count, .tag = "copies/by_counts", .over_steps = OverSteps::sum, .in_run = "by_counts",
    .group = &kCopies, .fact = {"choices", "with replicas by the counts"},
    .curve = {&kChoicesChart, "replicas by counts", 2, Style::plain}};
inline constexpr Figure kReplicasByHistory{.key = "copies_by_history",
    .meaning = "Choices that made replicas by the loads of the last steps.", .unit = Unit::count,
    .tag = "copies/by_history", .over_steps = OverSteps::sum, .in_run = "by_history", .group = &kCopies,
    .fact = {"choices", "with replicas by the last steps' loads"},
    .curve = {&kChoicesChart, "replicas by history", 0, Style::plain}};
inline constexpr Figure kReplicasEven{.key = "copies_even", .meaning = "Choices that made no replicas at an even load.",
    .unit = Unit::count, .tag = "copies/even", .over_steps = OverSteps::sum, .in_run = "even", .group = &kCopies,
    .fact = {"choices", "without, the load being even"}, .curve = {&kChoicesChart, "none: even", 10, Style::plain}};
inline constexpr Figure kReplicasNotWorth{.key = "copies_not_worth",
    .meaning = "Choices that made no replicas because none would have paid.", .unit = Unit::count,
    .tag = "copies/not_worth", .over_steps = OverSteps::sum, .in_run = "not_worth", .group = &kCopies,
    .fact = {"choices", "without, for none paid"}, .curve = {&kChoicesChart, "none: none paid", 1, Style::plain}};

// Experts that change ranks.
inline constexpr Figure kExpertsMoved{.key = "experts_moved",
    .meaning = "Experts that changed ranks as the step ended.", .unit = Unit::count, .logged = Logged::extra,
    .over_steps = OverSteps::sum, .in_run = "experts_moved", .group = &kMoves, .fact = {"experts that moved"}};
inline constexpr Figure kExpertsMovedBytes{.key = "experts_moved_bytes",
    .meaning = "Bytes of state that moved with them.", .unit = Unit::bytes, .logged = Logged::extra,
    .over_steps = OverSteps::sum, .in_run = "experts_moved_bytes", .group = &kMoves,
    .fact = {"state that moved with them"}};
inline constexpr Figure kMovesMade{.key = "moves_made", .meaning = "Layers that the step examined and whose experts it moved.",
    .unit = Unit::count, .logged = Logged::extra, .over_steps = OverSteps::sum, .in_run = "moves_made",
    .group = &kMoves, .fact = {"examined layers", "that moved some"}};
inline constexpr Figure kMovesEven{.key = "moves_even",
    .meaning = "Layers that the step examined and whose load was even.", .unit = Unit::count, .logged = Logged::extra,
    .over_steps = OverSteps::sum, .in_run = "moves_even", .group = &kMoves,
    .fact = {"examined layers", "at an even load"}};
inline constexpr Figure kMovesNotWorth{.key = "moves_not_worth",
    .meaning = "Layers that the step examined and where no move would have paid.", .unit = Unit::count,
    .logged = Logged::extra, .over_steps = OverSteps::sum, .in_run = "moves_not_worth", .group = &kMoves,
    .fact = {"examined layers", "where none would have paid"}};

/// The table, in the order in which figures are written and shown.
inline constexpr const Figure* kRows[] = {
    &kTokens, &kLoss, &kRecentLoss, &kAuxiliaryLoss, &kDepthLoss, &kHeldOutLoss, &kHeldOutStep, &kHeldOutRewardMargin,
    &kHeldOutRewardAccuracy, &kRewardChosen, &kRewardRejected, &kRewardMargin, &kRewardAccuracy, &kLogitZLoss, &kZLoss,
    &kIndexLoss, &kMaxLogit, &kLearningRate, &kGradientNorm, &kSkippedSteps, &kRolledBack, &kEpoch, &kBatch, &kCheckpointEvery, &kSnapshotEvery,
    &kStepSeconds, &kTokensPerSecond, &kFlopsPerSecond, &kChannelSeconds, &kChannelBytes, &kHostStalls, &kEngineMessages,
    &kEngineBytes, &kEngineShortMessages, &kEngineShortBytes, &kEngineFarMessages, &kEngineFarBytes, &kSlowRanks,
    &kSlowLinks, &kArenaLivePeak, &kArenaReservedPeak, &kPredictedReserved, &kGrownBeyondPrediction, &kTrainedSeconds,
    &kElapsedSeconds, &kStepPredicted, &kFirstSteps, &kStepRefitted, &kImbalance, &kExpertLoads, &kBiasUpdateRate,
    &kDroppedShare, &kSecondRounds, &kFullestRouted, &kFullestWithReplicas, &kRoutedRows, &kComputedRows, &kReplicaRows,
    &kReplicaCrossingsSaved, &kReplicaWeightBytes, &kReplicaGradientBytes, &kReplicasByCounts, &kReplicasByHistory, &kReplicasEven,
    &kReplicasNotWorth, &kExpertsMoved, &kExpertsMovedBytes, &kMovesMade, &kMovesEven, &kMovesNotWorth};
// clang-format on

}  // namespace figures

/// The values of one step, of one of its layers, or of a run. A figure that nobody has set is not there; one that
/// was measured and is not a number stays NaN.
class Figures {
 public:
  struct Number {
    const Figure* row;
    std::string index;  // a family's; "" else
    double value;
    bool operator==(const Number&) const = default;
    /// Returns the key as the log and MLflow have it.
    std::string key() const;
  };
  struct List {
    const Figure* row;
    std::vector<double> values;
    bool operator==(const List&) const = default;
  };

  /// Sets a number. InternalError of a row that is not in the table.
  void set(const Figure& row, double value) { of(row, "") = value; }
  void set(const Figure& row, std::string_view index, double value) { of(row, index) = value; }
  void set_list(const Figure& row, std::vector<double> values);
  void erase(const Figure& row);

  std::optional<double> get(const Figure& row) const;
  double get(const Figure& row, double if_absent) const { return get(row).value_or(if_absent); }
  bool has(const Figure& row) const { return get(row).has_value(); }
  /// The numbers of a family, in the order in which they were first set.
  std::vector<Number> family(const Figure& row) const;
  /// Returns the list of a row, empty where there is none.
  const std::vector<double>& list(const Figure& row) const;
  /// Returns all but lists, in the order of the table.
  std::vector<Number> numbers() const;

  /// Figures of each MoE layer: rows with a list, and parts of what the step has in all. Empty in steps without
  /// any.
  std::vector<Figures> layers;

  bool operator==(const Figures&) const = default;

 private:
  double& of(const Figure& row, std::string_view index);

  std::vector<std::pair<const Figure*, double>> single_;
  std::vector<Number> of_families_;
  std::vector<List> lists_;
};

/// Returns the row of a key of the log, today's or an earlier one, and in `index` which number of a family it is;
/// null where there is none.
const Figure* find_figure(std::string_view key, std::string* index = nullptr);

/// Returns the row of a key that the program itself names. InternalError where no row has it.
const Figure& figure_of(std::string_view key);

/// A value as people read it: 3.2140, 12.3 Ktok/s, 1.2 GiB.
std::string text_of(const Figure& row, double value);

/// Sums a group's figures over the layers, as the step's own.
void add_layers(Figures& figures, const FigureGroup& group);

}  // namespace heddle::observe
