// Time for which a thread or the process had a core, so that what else runs on the machine doesn't count.
#pragma once

#include <time.h>

#include <cstdint>

namespace heddle::bench {

inline int64_t core_ns(clockid_t of = CLOCK_THREAD_CPUTIME_ID) {
  timespec time{};
  ::clock_gettime(of, &time);
  return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

}  // namespace heddle::bench
