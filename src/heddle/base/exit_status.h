// What `heddle` exits with, whichever rank says so.
#pragma once

namespace heddle {

inline constexpr int kDone = 0, kFailed = 1, kBadInput = 2, kInterrupted = 130;

}  // namespace heddle
