// Tables of measured points for heddle predict, of any text: each row is a job or has a reason why there is none.
#include "advisor/points/point_job.h"
#include "tests/fuzz/pieces.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  using namespace heddle;
  fuzz::accepts([&] {
    const advisor::PointTable table = advisor::read_points({reinterpret_cast<const char*>(bytes), size}, "fuzz");
    if (table.lines.size() != table.rows.size()) std::abort();
    for (size_t row = 0; row < table.rows.size(); ++row) {
      if (table.rows[row].size() != table.columns.size()) std::abort();
      const advisor::PointJob point = advisor::job_of_point(table, row);
      if (point.reason.find('\n') != std::string::npos) std::abort();
      if (!point.reason.empty()) continue;
      advisor::measured_peak_bytes(table, row);
      advisor::measured_tokens_per_s(table, row, point);
    }
  });
  return 0;
}
