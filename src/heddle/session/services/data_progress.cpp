// The part of its data that a run has read: epochs, and the batch of a step that grows. Tells once when the text is
// read more often than teaches.
#include "heddle/observe/report.h"
#include "heddle/session/notes/data_notes.h"
#include "heddle/session/run_data.h"
#include "heddle/session/services/services.h"
#include "heddle/train/step/result.h"

namespace heddle::session {

namespace {

class DataProgress final : public Service {
 public:
  using Service::Service;

  void after(StepRecord& record) override {
    const config::RunConfig& config = run_.config;
    const int64_t step = record.result.step;
    if (config.train.epochs > 0)
      record.metrics.set(observe::figures::kEpoch, static_cast<double>(config.data_after(step).consumed) /
                                                       static_cast<double>(run_.data->dataset->train_sequences()));
    if (config.train.batch_ramp)
      record.metrics.set(observe::figures::kBatch, static_cast<double>(config.data_after(step - 1).batch));
    if (const auto note = epoch_note(config, *run_.data->dataset, step)) run_.warn(*note);
  }

  void report(observe::ReportData& data) override {
    if (run_.data->prepared) data.unigram_entropy = run_.data->prepared->unigram_nats_per_token;
  }
};

}  // namespace

std::unique_ptr<Service> make_data_progress(RunContext& run) { return std::make_unique<DataProgress>(run); }

}  // namespace heddle::session
