// The table of services, in the order in which every rank calls them.
//
// The order has reasons. Trace and op times stop their clocks right behind the step. Services that may go back or
// choose frequencies come before those that act on it. All that adds figures comes before the logs, the logs before
// the checkpoint, which may fail, and the checkpoint before the report. What closes with the run (MLflow, the
// user's program) comes behind the last report. The step limit is last, for it must know whether anything else was
// done.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "heddle/session/run/context.h"
#include "heddle/session/services/service.h"

namespace heddle::session {

struct ServiceRow {
  std::string_view name;
  /// True if a run has it on this rank, by its configuration.
  bool (*wanted)(const RunContext&);
  /// Made before data, trainer and folder are there: errors in its settings show here (ConfigError, SystemError).
  /// The context outlives it.
  std::unique_ptr<Service> (*make)(RunContext&);
};
using ServiceRows = std::vector<ServiceRow>;

const ServiceRows& service_rows();

// The services, one file each.

/// Listens to signals, and answers them by the step under way.
std::unique_ptr<Service> make_signals(RunContext& run);
/// Records the ops of step train.trace_step: timeline, pipeline and memory, for the report and for Perfetto.
std::unique_ptr<Service> make_trace(RunContext& run);
/// Times the ops of steps: on demand, or because a rank is slow. Leaves a traced step alone.
std::unique_ptr<Service> make_op_times(RunContext& run);
/// Loss, rates and speed of a step.
std::unique_ptr<Service> make_step_figures(RunContext& run);
/// Rows of experts: loads, replicas, moves, dropped choices.
std::unique_ptr<Service> make_expert_figures(RunContext& run);
/// Counts steps that were left out as outliers; goes back to a checkpoint after train.roll_back_after in a row.
std::unique_ptr<Service> make_outliers(RunContext& run);
/// Memory of a step; tells when an arena grows beyond its prediction.
std::unique_ptr<Service> make_arena(RunContext& run);
/// Finds slow ranks and links, and raises alarms.
std::unique_ptr<Service> make_rank_watch(RunContext& run);
/// Time and bytes of communication, by channel.
std::unique_ptr<Service> make_traffic(RunContext& run);
/// Compares the first steps with the predicted duration of a step.
std::unique_ptr<Service> make_prediction(RunContext& run);
/// Says which steps are followed by a checkpoint; learns what keeping state costs, and chooses how often.
std::unique_ptr<Service> make_frequency(RunContext& run);
/// Digests of weights and ops; compares the copies of weights.
std::unique_ptr<Service> make_audit(RunContext& run);
/// Evaluates on the held-out text and continues the sample prompt, every train.eval_every steps.
std::unique_ptr<Service> make_evaluation(RunContext& run);
/// Looks, once a second, whether the folder is still the run's to write into.
std::unique_ptr<Service> make_folder(RunContext& run);
/// Reports how much of the data was read.
std::unique_ptr<Service> make_data_progress(RunContext& run);
/// Metrics, TensorBoard and the progress bar. Behind all services that add figures.
std::unique_ptr<Service> make_logs(RunContext& run);
/// Tells the figures of steps to the program that holds Heddle (base/holder.h), which may end the run.
std::unique_ptr<Service> make_step_listener(RunContext& run);
/// Keeps the state: on disk, and copies in memory.
std::unique_ptr<Service> make_checkpoint(RunContext& run);
/// Writes the report, after each evaluation and at the end.
std::unique_ptr<Service> make_report(RunContext& run);
/// Tells the figures of steps to an MLflow folder.
std::unique_ptr<Service> make_mlflow(RunContext& run);
/// Serves the figures of the last step to Prometheus.
std::unique_ptr<Service> make_prometheus(RunContext& run);
/// Minds the user's program that is run for alarms.
std::unique_ptr<Service> make_alarm_command(RunContext& run);
/// Warns, after the third step, of a launcher that gives its ranks less time to end than a step takes.
std::unique_ptr<Service> make_launcher_note(RunContext& run);
/// Sets how long ranks wait for each other in a step. Behind all others: a step that they did more with is not
/// plain.
std::unique_ptr<Service> make_step_limit(RunContext& run);

}  // namespace heddle::session
