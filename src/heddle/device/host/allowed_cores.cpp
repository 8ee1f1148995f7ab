#include "heddle/device/host/allowed_cores.h"

#include <sched.h>

#include <algorithm>
#include <thread>

namespace heddle::device {

int allowed_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) == 0) return CPU_COUNT(&set);
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));  // a mask too large for the set
}

}  // namespace heddle::device
