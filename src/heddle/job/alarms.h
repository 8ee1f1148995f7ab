// Follows the alarms of slow ranks that the ranks of a job write to FOLDER/alarms.jsonl (session/slow/alarm.h). A
// supervisor may then take a spare instead of a host.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace heddle::job {

struct SlowRankAlarm {
  int64_t rank = 0;
  std::string why;
};

/// Follows the file as it grows, from where it ends now.
class AlarmTail {
 public:
  explicit AlarmTail(std::string path);
  /// Returns the next slow rank of this generation; none: no more so far. A line that is no alarm is passed over.
  std::optional<SlowRankAlarm> next(int64_t generation);

 private:
  std::string path_;
  int64_t at_ = 0;
  std::string held_;  // read, from a line on that was not looked at
};

}  // namespace heddle::job
