// What the ranks of a job have told of slow ranks in FOLDER/alarms.jsonl (session/slow/alarm.h), for a supervisor
// that may take a spare in the place of a host.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace heddle::job {

struct SlowRankTold {
  int64_t rank = 0;
  std::string why;
};

/// Follows the file as it grows, from where it ends now.
class AlarmTail {
 public:
  explicit AlarmTail(std::string path);
  /// The next slow rank of this generation; none: nothing more was told so far. A line that is no alarm is passed
  /// over.
  std::optional<SlowRankTold> next(int64_t generation);

 private:
  std::string path_;
  int64_t at_ = 0;
  std::string held_;  // read, from a line on that was not looked at
};

}  // namespace heddle::job
