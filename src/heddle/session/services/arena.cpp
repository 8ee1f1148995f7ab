// The memory of a step. Experts may receive more rows than predicted: the first arena that had to grow for them is
// reported, once.
#include <utility>

#include "heddle/observe/report.h"
#include "heddle/observe/units.h"
#include "heddle/session/services/services.h"
#include "heddle/train/trainer.h"

namespace heddle::session {

namespace {

class ArenaService final : public Service {
 public:
  using Service::Service;

  void after(StepRecord& record) override {
    const train::StepResult& result = record.result;
    record.metrics.set(observe::figures::kArenaLivePeak, static_cast<double>(result.peak_live_bytes));
    record.metrics.set(observe::figures::kArenaReservedPeak, static_cast<double>(result.reserved_bytes));
    if (result.grown_bytes == 0) return;
    if (!std::exchange(has_grown_, true)) tell(result);
    record.metrics.set(observe::figures::kGrownBeyondPrediction, static_cast<double>(result.grown_bytes));
  }

  void report(observe::ReportData& data) override {
    data.figures.set(observe::figures::kPredictedReserved, static_cast<double>(run_.peak.reserved_bytes));
    data.peak_tensors = run_.peak.tensors;
    if (run_.trainer->ranks().size() == 1) return;
    data.fullest = "of the fullest rank";
    data.peak_of = fmt::format("rank {}", run_.peak.rank);
  }

 private:
  void tell(const train::StepResult& result) {
    const std::string whose =
        run_.trainer->ranks().size() > 1 ? fmt::format("rank {}'s arena", result.grown_rank) : "the arena";
    run_.terminal.line(
        fmt::format("step {}: {} has grown by {} beyond its prediction, of at most {}", result.step, whose,
                    observe::bytes_text(static_cast<double>(result.grown_bytes)),
                    observe::bytes_text(static_cast<double>(run_.trainer->options().memory_limit_bytes))));
  }

  bool has_grown_ = false;
};

}  // namespace

std::unique_ptr<Service> make_arena(RunContext& run) { return std::make_unique<ArenaService>(run); }

}  // namespace heddle::session
