// Tables of measured points for heddle predict, of any text: each row is a job or has a reason why there is none.
#include "heddle/search/predict/point_job.h"
#include "tests/fuzz/pieces.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  using namespace heddle;
  fuzz::accepts([&] {
    const search::PointTable table = search::read_points({reinterpret_cast<const char*>(bytes), size}, "fuzz");
    if (table.lines.size() != table.rows.size()) std::abort();
    for (size_t row = 0; row < table.rows.size(); ++row) {
      if (table.rows[row].size() != table.columns.size()) std::abort();
      const search::PointJob point = search::job_of_point(table, row);
      if (point.reason.find('\n') != std::string::npos) std::abort();
      if (!point.reason.empty()) continue;
      search::measured_peak_bytes(table, row);
      if (point.time_reason.empty()) search::measured_tokens_per_s(table, row, point);
    }
  });
  return 0;
}
