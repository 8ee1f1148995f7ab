// The way of a failure from the op that threw to the caller that reports it, and the program's exit status.
#pragma once

#include <exception>
#include <string>

#include "heddle/base/error.h"

namespace heddle {

/// Exit statuses of `heddle`, whichever rank says so.
inline constexpr int kDone = 0, kFailed = 1, kBadInput = 2, kInterrupted = 130;

/// Raised where a rank learns that another has failed: an effect, never the cause. `reason` is that of the rank
/// which failed first, as it said it.
class PeerError : public SystemError {
 public:
  explicit PeerError(const std::string& reason, int accused = -1)
      : SystemError(0, "communication stopped: " + reason), reason(reason) {
    rank = accused;
  }
  std::string reason;
};

/// The text of an exception.
std::string text_of(const std::exception_ptr& error);
/// The exception with " (where)" behind its text; as it is, when it is of no kind known here.
std::exception_ptr with_place(const std::exception_ptr& error, const std::string& where);

}  // namespace heddle
