// The communication of a step on rank 0: seconds and bytes of each channel, messages of the copy engine. The log of
// calls, in which other ranks see what this one waits for, learns here which step it is.
#include "heddle/comm/calls/call_log.h"
#include "heddle/observe/report.h"
#include "heddle/runtime/copy_engine.h"
#include "heddle/session/services/services.h"
#include "heddle/train/trainer.h"

namespace heddle::session {

namespace {

namespace figures = observe::figures;

class TrafficService final : public Service {
 public:
  using Service::Service;

  void before(int64_t step) override {
    if (run_.place.calls != nullptr) run_.place.calls->at_step(step);
  }

  void after(StepRecord& record) override {
    if (!run_.leads()) return;
    if (run_.place.calls != nullptr) add_calls(record.metrics);
    if (const runtime::CopyEngine* copies = asked_engine()) add_copies(*copies, record.metrics);
  }

  void report(observe::ReportData& data) override {
    if (const runtime::CopyEngine* copies = asked_engine())
      data.environment.emplace_back("copy engine, rank 0", copies->text());
  }

 private:
  const runtime::CopyEngine* asked_engine() const {
    const runtime::CopyEngine* copies = run_.trainer->copy_engine();
    return copies != nullptr && copies->asked() ? copies : nullptr;
  }

  void add_calls(observe::StepMetrics& metrics) {
    for (const comm::CallLog::Total& total : run_.place.calls->totals()) {
      auto& [told_s, told_bytes] = told_[std::string(total.channel)];
      metrics.set(figures::kChannelSeconds, total.channel, total.inside_s - std::exchange(told_s, total.inside_s));
      metrics.set(figures::kChannelBytes, total.channel, total.bytes - std::exchange(told_bytes, total.bytes));
    }
  }

  void add_copies(const runtime::CopyEngine& copies, observe::StepMetrics& metrics) {
    const comm::EngineTally now = copies.tally(), before = std::exchange(told_copies_, now);
    const auto add = [&](const observe::Figure& row, int64_t comm::EngineTally::*count) {
      metrics.set(row, static_cast<double>(now.*count - before.*count));
    };
    add(figures::kEngineMessages, &comm::EngineTally::messages);
    add(figures::kEngineBytes, &comm::EngineTally::bytes);
    add(figures::kEngineShortMessages, &comm::EngineTally::short_messages);
    add(figures::kEngineShortBytes, &comm::EngineTally::short_bytes);
    add(figures::kEngineFarMessages, &comm::EngineTally::far_messages);
    add(figures::kEngineFarBytes, &comm::EngineTally::far_bytes);
  }

  std::map<std::string, std::pair<double, double>> told_;  // seconds and bytes by channel, up to the step before
  comm::EngineTally told_copies_;                          // copies up to the step before
};

}  // namespace

std::unique_ptr<Service> make_traffic(RunContext& run) { return std::make_unique<TrafficService>(run); }

}  // namespace heddle::session
