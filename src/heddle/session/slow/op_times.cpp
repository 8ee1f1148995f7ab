#include "heddle/session/slow/op_times.h"

#include <cstring>
#include <numeric>
#include <type_traits>

#include "heddle/base/error.h"
#include "heddle/base/statistics.h"

namespace heddle::session {

static_assert(std::is_trivially_copyable_v<OpTime>);

std::string packed(const OpTimes& times) {
  return {reinterpret_cast<const char*>(times.data()), times.size() * sizeof(OpTime)};
}

OpTimes unpacked(const std::string& bytes) {
  HEDDLE_CHECK(bytes.size() % sizeof(OpTime) == 0, "{} bytes of times of ops", bytes.size());
  OpTimes times(bytes.size() / sizeof(OpTime));
  if (!times.empty()) std::memcpy(static_cast<void*>(times.data()), bytes.data(), bytes.size());
  return times;
}

void OpClock::before_step(runtime::Executor& executor) {
  for (int i = 0; i < executor.walk().streams().count(); ++i) (void)executor.stream(i).take_spans();
  executor.set_trace(true);
}

bool OpClock::after_step(runtime::Executor& executor) {
  executor.set_trace(false);
  for (int i = 0; i < executor.walk().streams().count(); ++i) {
    for (const device::Span& span : executor.stream(i).take_spans()) {
      Seen& seen = seen_[{span.listing, span.op_index}];
      seen.calls_s.push_back(static_cast<double>(span.end_ns - span.start_ns) * 1e-9);
      if (span.rows >= 0) seen.rows = std::max<int64_t>(0, seen.rows) + span.rows;
    }
  }
  ++steps_;
  return --left_ == 0;
}

OpTimes OpClock::take() {
  OpTimes times;
  const auto steps = static_cast<double>(std::exchange(steps_, 0));
  for (auto& [key, seen] : std::exchange(seen_, {})) {
    OpTime time{key.first, key.second, static_cast<double>(seen.calls_s.size()) / steps, 0, -1, 0};
    if (seen.rows >= 0) {
      time.rows = static_cast<double>(seen.rows) / steps;
      const double all_s = std::accumulate(seen.calls_s.begin(), seen.calls_s.end(), 0.0);
      if (seen.rows > 0) time.row_s = all_s / static_cast<double>(seen.rows);
    }
    time.call_s = quantile(std::move(seen.calls_s), 0.5);
    times.push_back(time);
  }
  return times;
}

}  // namespace heddle::session
