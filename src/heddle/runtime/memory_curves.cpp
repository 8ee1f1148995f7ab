#include "heddle/runtime/memory_curves.h"

#include "heddle/runtime/dry_run.h"
#include "heddle/simulate/curve_builder.h"

namespace heddle::runtime {

namespace {

// Draws a walk's memory. The ops of the compute stream run one after the other.
class DrawnWalk : public ir::Issuer, public ir::Walk::Watcher {
 public:
  DrawnWalk(const ir::StepProgram& program, int rank, std::string_view backend,
            const simulate::DurationUs& duration_us, double crowding)
      : rank_(rank),
        scratch_(kernel_scratch(program, backend)),
        rows_(balanced_rows(program, crowding)),
        duration_us_(duration_us),
        builder_(program, rank) {}

  int64_t scratch_bytes(int listing, uint32_t op, const ir::RowCounts& rows) override {
    return scratch_(listing, op, rows);
  }
  int64_t read_rows(const ir::Issue& issue, size_t output) override { return rows_(rank_, issue, output); }
  void issue(const ir::Issue& issue) override {
    if (issue.stream == ir::StreamTable::compute) now_us_ += duration_us_(rank_, issue);
  }

  void placed(int listing, ir::ValueId id, int microbatch, int64_t bytes) override {
    builder_.changes(listing, id, microbatch, bytes);
  }
  void released(int listing, ir::ValueId id, int microbatch, int64_t bytes) override {
    builder_.changes(listing, id, microbatch, -bytes);
  }
  void issued(const ir::Issue& issue) override {
    if (issue.stream == ir::StreamTable::compute) begun_us_ = now_us_;
    builder_.begins(issue.listing, issue.op_index, issue.microbatch, begun_us_);
  }
  void began_cycle() override {
    cycle_us_ = now_us_;
    builder_.began_cycle();
  }
  void repeated(int64_t times, int microbatches) override {
    const double each_us = now_us_ - cycle_us_, skipped_us = static_cast<double>(times) * each_us;
    builder_.repeated(times, microbatches, each_us);
    now_us_ += skipped_us;
    begun_us_ += skipped_us;
  }

  std::vector<simulate::MemoryCurve> curves() { return builder_.curves(now_us_); }

 private:
  const int rank_;
  const simulate::ScratchBytes scratch_;
  const simulate::RowsRead rows_;
  const simulate::DurationUs& duration_us_;
  simulate::CurveBuilder builder_;
  double now_us_ = 0, begun_us_ = 0, cycle_us_ = 0;  // begun: the last op of the compute stream
};

}  // namespace

std::vector<simulate::MemoryCurve> predict_memory_curves(const ir::StepProgram& program, int rank,
                                                         std::string_view backend,
                                                         const simulate::DurationUs& duration_us, double crowding) {
  DrawnWalk drawn(program, rank, backend, duration_us, crowding);
  ir::Walk walk(program, rank, 0);
  walk.watcher = &drawn;
  walk.skip_repeats = true;
  // A copy of the state runs beside the step that follows it, and counts with it.
  for (const ir::Purpose purpose : {ir::Purpose::snapshot, ir::Purpose::train}) {
    if (purpose == ir::Purpose::train || !program.actions_of(rank, purpose).empty()) walk.run_step(drawn, purpose);
  }
  return drawn.curves();
}

}  // namespace heddle::runtime
