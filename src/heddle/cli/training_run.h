// One run of `heddle train`: data, trainer, logs, looks at the held-out text, checkpoints and the report.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "heddle/cli/run_data.h"
#include "heddle/cli/run_folder.h"
#include "heddle/cli/run_trace.h"
#include "heddle/observe/metrics_log.h"
#include "heddle/observe/progress.h"
#include "heddle/observe/report.h"
#include "heddle/observe/tensorboard.h"
#include "heddle/runtime/predict.h"
#include "heddle/train/tokenizer.h"
#include "heddle/train/trainer.h"

namespace heddle::cli {

/// What a run comes to.
struct RunSummary {
  std::string folder, checkpoint, report;
  int64_t first_step = 0, steps = 0;  // done before, done now in all
  bool interrupted = false;
  double seconds = 0;
  double loss = 0;  // of the last step
  std::optional<double> held_out_loss;
  double tokens_per_s = 0;  // median of the steps
  double flops_per_s = 0;
  int64_t predicted_reserved_bytes = 0, reserved_bytes = 0;
};

class TrainingRun {
 public:
  /// Prepares everything up to the first step. With `resume` goes on from the newest whole checkpoint of the
  /// folder. With `trace` the traced step is also written for Perfetto.
  TrainingRun(train::RunConfig config, bool resume, bool trace);
  ~TrainingRun();

  /// Trains to the last step, or until the process is asked to stop (SIGINT, SIGTERM): then the step under way ends
  /// and a checkpoint is written.
  RunSummary run();

 private:
  void restore();
  void introduce();
  void step();
  void look(StepMetrics& metrics);
  void save();
  void report();
  ReportData report_data() const;

  train::RunConfig config_;
  RunFolder folder_;
  bool trace_;
  RunData data_;
  std::map<std::string, std::string> data_identity_;
  std::optional<train::Tokenizer> tokenizer_;
  std::unique_ptr<train::Trainer> trainer_;
  runtime::MemoryPrediction predicted_;
  std::unique_ptr<MetricsLog> log_;
  std::unique_ptr<TensorboardFile> tensorboard_;
  std::unique_ptr<Progress> progress_;
  std::vector<StepMetrics> history_;
  std::vector<SampleText> samples_;
  std::optional<StepTrace> traced_;
  std::vector<std::string> warnings_;
  std::vector<double> tokens_per_s_;
  int64_t saved_step_ = -1;
  RunSummary summary_;
};

}  // namespace heddle::cli
