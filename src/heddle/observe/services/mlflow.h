// Writes a run's figures into a folder of MLflow (`mlruns`), as its file store lays them out, for
// `mlflow ui --backend-store-uri FOLDER`:
//
//   EXPERIMENT/meta.yaml        EXPERIMENT/RUN/meta.yaml      …/metrics/KEY   "milliseconds value step", a line
//   each
//                                                             …/params/KEY    …/tags/KEY
//
// Source: MLflow's FileStore (mlflow/store/tracking/file_store.py). The run's identifier comes from the path of its
// folder, so that a run that goes on adds to what it has written before.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "heddle/base/files/output_file.h"
#include "heddle/observe/step_metrics.h"

namespace heddle::observe {

class MlflowRun {
 public:
  struct Names {
    std::string experiment, run_folder;
    std::vector<std::pair<std::string, std::string>> settings;
  };

  /// Makes `folder` and the run in it; one of the same run folder begins anew unless it `goes_on`. SystemError.
  MlflowRun(const std::string& folder, const Names& names, bool goes_on);

  /// Every number that the step has, under its key. SystemError.
  void add(const StepMetrics& metrics);

  /// The run has ended, whole or not. SystemError.
  void finish(bool whole);

 private:
  void write_meta(int status, double end_s) const;

  std::string experiment_id_, run_id_, name_, path_;
  double began_s_ = 0;
  std::map<std::string, OutputFile> metrics_;
};

}  // namespace heddle::observe
