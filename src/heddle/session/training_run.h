// One run of `heddle train`: data, trainer, logs, looks at the held-out text, checkpoints and the report. Each rank
// has one and goes through the same steps; rank 0 alone prints, and writes into the run's folder.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "heddle/comm/calls/call_log.h"
#include "heddle/data/tokenizer/tokenizer.h"
#include "heddle/observe/progress.h"
#include "heddle/observe/services/mlflow.h"
#include "heddle/observe/services/prometheus.h"
#include "heddle/runtime/predict.h"
#include "heddle/session/agent/frequency.h"
#include "heddle/session/audit/audit_trail.h"
#include "heddle/session/ranks/rank_watch.h"
#include "heddle/session/run_data.h"
#include "heddle/session/run_folder.h"
#include "heddle/session/run_logs.h"
#include "heddle/session/signals.h"
#include "heddle/session/slow/alarm_command.h"
#include "heddle/session/traced/run_memory.h"
#include "heddle/session/traced/run_pipeline.h"
#include "heddle/session/traced/run_trace.h"
#include "heddle/train/trainer_checkpoint.h"

namespace heddle::session {

/// What the first steps took, as rank 0 sees it.
struct FirstSteps {
  double step_s = 0;     // median
  double compute_s = 0;  // that the compute streams were busy, mean of the ranks; 0: no step of them was traced
};

/// Where one rank of a run stands.
struct RankPlace {
  comm::World* world = nullptr;    // null: the only rank
  comm::CallLog* calls = nullptr;  // where the rank tells what it waits for; null: nowhere
  bool threads = false;            // the ranks are threads of this process
  double foretold_s = 0;           // what a step was said to take; 0: nobody has asked
  /// On rank 0, told once what the first steps took: lines for the log.
  std::function<std::vector<std::string>(const FirstSteps&)> learn;
  /// On rank 0, for a plan that does not fit: what would do. One line.
  std::function<std::string()> remedy;
};

/// What the user wants to see of a run. How far it is and how long it lasts, the run itself fills in.
struct Telling {
  bool trace = false;      // also write the traced step for Perfetto
  std::string mlflow;      // a folder of MLflow that is told too; "": none
  std::string prometheus;  // an address at which the last step's figures are to be had; "": none
  observe::ProgressOptions progress;
};

/// What a run comes to.
struct RunSummary {
  std::string folder, checkpoint, report;  // report: "" when the disk refused it
  std::string trace;                       // for Perfetto; "" where none was asked for or written
  std::string weights_digest;              // the last that was taken (train/weight_digest.h)
  int64_t first_step = 0, steps = 0;       // done before, done now in all
  bool interrupted = false;
  int64_t updates_ahead = 0, updates_taken_back = 0;  // of the norm, since the run began or was resumed
  int64_t skipped = 0, gone_back = 0;  // steps left out as outliers, and times that it went back for them, in all
  std::optional<std::vector<NamedSlowRank>> slow_ranks;  // at the end; none: ranks were not watched
  nlohmann::ordered_json slow_links;                     // likewise; null: none is slow
  double length_s = 0;                                   // of a run by the clock, else 0
  int64_t tokens = 0, text_tokens = 0;                   // trained on, and in the training text
  observe::RunFigures figures;                           // of all steps in the folder, as the report has them
  double foretold_s = 0, first_steps_s = 0;              // of a step: as planned, and median of the first ones
  double refitted_s = 0;                                 // foretold by what those taught
};

class TrainingRun {
 public:
  /// Prepares everything up to the first step. With `resume` goes on from the newest whole checkpoint of the
  /// folder, or from the beginning where there is none yet.
  TrainingRun(config::RunConfig config, bool resume, Telling telling, const RankPlace& place = {});
  ~TrainingRun();

  /// Trains to the last step, or until a process is asked to stop (Signals): then the step under way ends and
  /// a checkpoint is written. The summary is rank 0's.
  RunSummary run();

 private:
  bool is_over() const { return config_.length().reached(trainer_->done()); }
  bool leads() const { return trainer_->ranks().leads(); }
  train::TrainerOptions options_that_fit(int rank);
  void open_data();
  void agree_on_data();
  void open_folder(bool resume);
  void publish_calls();
  void begin_logs(bool resume);
  void tell_others(bool resume);
  void begin_anew();
  void restore();
  std::optional<train::Checkpoint> memory_to_go_on_from();
  bool go_on_from(const train::Checkpoint& checkpoint);
  void begin_snapshots();
  std::string digest_now() const;
  void mind_frequency(const train::StepResult& result);
  void choose_frequency();
  void checkpoint();
  void warn(const std::string& text);
  void introduce();
  void trace(int64_t step, int64_t began_ns, double step_s);
  bool step();
  bool record(const train::StepResult& result);
  bool mind_outliers(const train::StepResult& result, observe::StepMetrics& metrics);
  void compare_with_plan(double step_s);
  void warn_of_launcher(double step_s);
  Wishes wishes();
  Wishes own_wishes();
  void tell(const std::vector<Alarm>& alarms);
  void watch_ranks(const train::StepResult& result, observe::StepMetrics& metrics);
  bool is_due(int64_t step) const;
  void answer_signals(const std::string& doing) const;
  void compare_with_arena(const train::StepResult& result);
  void measure_heldout(observe::StepMetrics& metrics);
  void look(observe::StepMetrics& metrics);
  void save();
  void report();
  void share_peak();
  observe::RunFigures figures() const;
  observe::ReportData report_data() const;

  config::RunConfig config_;
  RunFolder folder_;
  Telling telling_;
  RankPlace place_;
  RunData data_;
  std::map<std::string, std::string> data_identity_;
  std::optional<data::Tokenizer> tokenizer_;
  std::unique_ptr<train::Trainer> trainer_;
  runtime::MemoryPrediction predicted_;  // of this rank
  std::optional<FolderLock> lock_;       // of the folder, rank 0's
  double fence_seen_s_ = 0;              // when this rank last looked whether its generation still holds
  std::unique_ptr<AuditTrail> audit_trail_;
  std::unique_ptr<RankWatch> rank_watch_;
  std::unique_ptr<AlarmCommand> alarm_command_;                  // rank 0's
  std::map<std::string, std::pair<double, double>> told_calls_;  // by channel: seconds in calls, bytes
  double wanted_seen_s_ = 0;       // when rank 0 last looked whether times of ops are asked for
  std::unique_ptr<RunLogs> logs_;  // rank 0's, likewise the two below
  std::unique_ptr<observe::MlflowRun> mlflow_;
  std::unique_ptr<observe::PrometheusPort> prometheus_;
  std::unique_ptr<observe::Progress> progress_;
  std::vector<observe::SampleText> samples_;
  std::optional<StepTrace> traced_;
  std::vector<observe::PipelineView> pipeline_;  // of the traced step, likewise the two below
  std::optional<simulate::MemoryLog> memory_log_;
  std::vector<observe::MemoryView> memory_;
  int fullest_rank_ = 0;  // as foretold, and what it will hold then
  double predicted_reserved_bytes_ = 0;
  std::vector<observe::PeakTensor> peak_tensors_;  // rank 0's to tell
  int64_t grown_bytes_ = 0;                        // of the arena that grew most beyond its forecast
  double step_s_ = 0;                              // of the last one
  std::optional<Wishes> wished_;                   // of all ranks, as told with a step's result
  double began_s_ = 0, began_unix_s_ = 0;
  std::vector<std::string> warnings_;
  int64_t steps_run_ = 0;
  std::vector<double> first_steps_s_;  // but the very first
  double compute_share_ = 0;           // of the traced step, as FirstSteps::compute_s
  int64_t checkpoint_every_ = 0;       // as configured, or chosen
  CopyFrequency frequency_;
  int64_t copies_seen_ = 0;  // in memory, and what they have kept this rank from its steps
  double blocked_seen_s_ = 0;
  int64_t saved_step_ = -1;
  comm::EngineTally told_copies_;  // in the steps before
  int64_t digest_step_ = -1;       // whose weights summary_.weights_digest is of
  bool persists_ = false;          // the copy in memory that comes next is to go to disk
  RunSummary summary_;
};

}  // namespace heddle::session
