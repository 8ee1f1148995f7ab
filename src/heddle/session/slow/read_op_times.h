// The times of ops that a run has left (op_times.json, op_table.h), read back to be shown.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace heddle::session {

/// The part of the table that is shown.
struct OpTimesTable {
  struct Row {
    std::string op, phase, stream;
    double calls = 0;
    double slowest_s = 0;  // time of a step on the rank that takes longest
    int64_t slowest_rank = 0;
    std::optional<double> over_others;
  };
  int64_t first_step = 0, last_step = 0, ranks = 0;
  std::vector<Row> rows;  // as they stand there
};

/// ConfigError with `path` where the text is anything else.
OpTimesTable read_op_times(std::string_view text, const std::string& path);

}  // namespace heddle::session
