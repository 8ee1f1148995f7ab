#include "heddle/device/host/host_memory.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <string>

namespace heddle::device {

namespace {

const std::string kGroup = "/sys/fs/cgroup/";

// A file that holds one number; -1 where there is none ("max", or no such file).
int64_t number_in(const std::string& path) {
  std::ifstream file(path);
  int64_t number = 0;
  return file >> number ? number : -1;
}

// The number behind a word in a file of lines "word number …"; 0 where there is none.
int64_t number_after(const std::string& path, const std::string& wanted) {
  std::ifstream file(path);
  std::string word;
  for (int64_t number = 0; file >> word >> number; file.ignore(256, '\n')) {
    if (word == wanted) return number;
  }
  return 0;
}

}  // namespace

int64_t host_memory_bytes() {
  const int64_t machine = static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGE_SIZE);
  const int64_t group = number_in(kGroup + "memory.max");
  return group > 0 ? std::min(machine, group) : machine;
}

int64_t host_memory_left_bytes() {
  int64_t left = number_after("/proc/meminfo", "MemAvailable:") * 1024;
  const int64_t group = number_in(kGroup + "memory.max"), taken = number_in(kGroup + "memory.current");
  if (group > 0 && taken >= 0) {
    left = std::min(left, group - taken + number_after(kGroup + "memory.stat", "inactive_file"));
  }
  return std::max<int64_t>(0, left);
}

}  // namespace heddle::device
