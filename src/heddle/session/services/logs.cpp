// Writes the figures of each step: to metrics.jsonl, to TensorBoard, to whatever other services have added to the
// logs, and to the progress bar.
#include "heddle/observe/experts/load_frames.h"
#include "heddle/session/run_logs.h"
#include "heddle/session/services/services.h"
#include "heddle/train/trainer.h"

namespace heddle::session {

namespace {

class LogService final : public Service {
 public:
  using Service::Service;

  void start() override {
    run_.logs = std::make_unique<RunLogs>(run_.folder, [this](const std::string& text) { run_.warn(text); });
    if (run_.resumes) {
      run_.logs->resume(run_.trainer->steps_done() + 1);
    } else {
      run_.logs->begin();
    }
  }

  void after(StepRecord& record) override {
    observe::StepMetrics& metrics = record.metrics;
    const size_t layers = metrics.layers.size();
    const size_t numbers = layers == 0 ? 0 : layers * metrics.layers[0].list(observe::figures::kExpertLoads).size();
    // A step that was evaluated has the figures of its layers, however many they are.
    if (!record.evaluated && !observe::have_layers(metrics.step, numbers)) observe::drop_layers(metrics);
    run_.logs->add(metrics);
    run_.terminal.update(metrics);
  }
};

}  // namespace

std::unique_ptr<Service> make_logs(RunContext& run) { return std::make_unique<LogService>(run); }

}  // namespace heddle::session
