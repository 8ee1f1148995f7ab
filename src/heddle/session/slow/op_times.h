// Times of each op of a rank over a few steps: level 2 of the watch over slow ranks, on demand and after an alarm.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "heddle/runtime/executor.h"

namespace heddle::session {

struct OpTime {
  int32_t listing = 0;
  uint32_t op = 0;
  double calls = 0;   // a step
  double call_s = 0;  // the middle one's
  double rows = -1;   // rows a step, for an op whose work depends on rows
  double row_s = 0;   // its time over its rows

  bool by_rows() const { return rows >= 0; }
  double seconds() const { return by_rows() ? rows * row_s : calls * call_s; }  // a step
  std::pair<int32_t, uint32_t> key() const { return {listing, op}; }
};
using OpTimes = std::vector<OpTime>;  // times of one rank, by listing and op

/// Packs times, to be sent to another rank of the same program and read there.
std::string packed(const OpTimes& times);
OpTimes unpacked(const std::string& bytes);

/// Takes the times of every op of so many steps. The streams must be idle before and behind each of them.
class OpClock {
 public:
  void time_steps(int64_t steps) { left_ = std::max(left_, steps); }
  bool runs() const { return left_ > 0; }
  void before_step(runtime::Executor& executor);
  /// True if that was the last step of them.
  bool after_step(runtime::Executor& executor);
  OpTimes take();

 private:
  struct Seen {
    std::vector<double> calls_s;
    int64_t rows = -1;
  };
  std::map<std::pair<int32_t, uint32_t>, Seen> seen_;
  int64_t left_ = 0, steps_ = 0;
};

}  // namespace heddle::session
