// One step seen op by op. All ranks begin it together, so that their clocks meet at its start.
#include "heddle/base/clock.h"
#include "heddle/runtime/executor.h"
#include "heddle/session/run_logs.h"
#include "heddle/session/services/services.h"
#include "heddle/session/traced/run_memory.h"
#include "heddle/session/traced/run_pipeline.h"
#include "heddle/session/traced/run_trace.h"

namespace heddle::session {

namespace {

class TraceService final : public Service {
 public:
  using Service::Service;

  void start() override {
    if (run_.leads() && run_.config.train.trace_step == 0)
      run_.warn("--trace: train.trace_step is 0, so no step is traced");
  }

  void before(int64_t step) override {
    if (!is_traced(run_.config.train, run_.summary.first_step, step)) return;
    train::Trainer& trainer = *run_.trainer;
    trainer.executor().set_trace(true);
    trainer.executor().walk().watcher = &memory_log_.emplace(trainer.lowered().program, trainer.ranks().rank());
    trainer.ranks().any(false);
    began_ns_ = now_ns();
  }

  void after(StepRecord& record) override {
    if (!memory_log_) return;
    record.plain = false;
    run_.within([&] { run_.patience.anything(); }, [&] { take(record); });
  }

  void report(observe::ReportData& data) override {
    if (!traced_) return;
    data.memory = memory_;
    data.timeline = traced_->timeline;
    data.timeline_title = fmt::format("step {}", traced_->step);
    data.pipeline = pipeline_;
  }

 private:
  void take(StepRecord& record) {
    train::Trainer& trainer = *run_.trainer;
    const int64_t step = record.result.step;
    trainer.executor().set_trace(false);
    const std::vector<RankSpans> spans = take_spans(trainer, began_ns_);
    trainer.executor().walk().watcher = nullptr;
    memory_ = memory_views(trainer, *memory_log_, spans, run_.peak.rank, step);
    memory_log_.reset();
    if (!run_.leads()) return;
    for (const RankSpans& rank : spans) {
      for (const device::Span& span : rank.of_stream[ir::StreamTable::compute])
        record.compute_share += static_cast<double>(span.end_ns - span.start_ns) * 1e-9 / record.result.seconds;
    }
    record.compute_share /= static_cast<double>(spans.size());
    traced_ = trace_of(trainer.lowered(), spans, step);
    pipeline_ = pipeline_views(trainer, spans);
    if (!run_.telling.trace || !run_.logs->write_trace(traced_->timeline)) return;
    run_.summary.trace = run_.folder.trace();
    run_.terminal.line(
        fmt::format("trace of step {}: {}; open it at https://ui.perfetto.dev", step, run_.folder.trace()));
  }

  int64_t began_ns_ = 0;
  std::optional<simulate::MemoryLog> memory_log_;  // while a step is traced
  std::optional<StepTrace> traced_;                // rank 0's, likewise the two below
  std::vector<observe::PipelineView> pipeline_;
  std::vector<observe::MemoryView> memory_;
};

}  // namespace

std::unique_ptr<Service> make_trace(RunContext& run) { return std::make_unique<TraceService>(run); }

}  // namespace heddle::session
