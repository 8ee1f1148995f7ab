// Tells the figures of each step to an MLflow folder, through the logs; at the end, behind the report, whether the
// run was whole.
#include "heddle/observe/services/mlflow.h"

#include "heddle/session/run_logs.h"
#include "heddle/session/services/services.h"

namespace heddle::session {

namespace {

class MlflowService final : public Service {
 public:
  using Service::Service;

  void start() override {
    const observe::MlflowRun::Names names{run_.config.name, run_.folder.path, config::setting_texts(run_.config)};
    mlflow_.emplace(run_.telling.mlflow, names, run_.resumes);
    run_.logs->also_to("mlflow", [this](const observe::StepMetrics& metrics) { mlflow_->add(metrics); });
  }

  void end() override {
    run_.logs->attempt("mlflow", [&] { mlflow_->finish(!run_.summary.interrupted); });
  }

 private:
  std::optional<observe::MlflowRun> mlflow_;
};

}  // namespace

std::unique_ptr<Service> make_mlflow(RunContext& run) { return std::make_unique<MlflowService>(run); }

}  // namespace heddle::session
