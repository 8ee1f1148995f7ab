#include "heddle/runtime/memory_curves.h"

#include "heddle/runtime/dry_run.h"

namespace heddle::runtime {

std::vector<simulate::MemoryCurve> predict_memory_curves(const ir::StepProgram& program, int rank,
                                                         std::string_view backend,
                                                         const simulate::DurationUs& duration_us, double crowding) {
  simulate::MemoryLog log(program, rank);
  simulate::RecordOptions options;
  options.scratch_bytes = kernel_scratch(program, backend);
  options.rows = balanced_rows(program, crowding);
  std::vector<double> starts_us;  // starts of the compute stream's ops
  double now_us = 0;
  options.duration_us = [&](int of_rank, const ir::Issue& issue) {
    if (issue.stream != ir::StreamTable::compute) return 0.0;
    const double us = duration_us(of_rank, issue);
    starts_us.push_back(now_us);
    now_us += us;
    return us;
  };
  options.watcher = &log;
  simulate::record(program, rank, options);
  return log.curves([&](const simulate::MemoryLog::Issued& op) { return starts_us.at(op.number); }, now_us);
}

}  // namespace heddle::runtime
