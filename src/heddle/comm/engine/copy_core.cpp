#include "heddle/comm/engine/copy_core.h"

#include <algorithm>
#include <fstream>
#include <string>

namespace heddle::comm {

namespace {

// "0,4", "0-3": the processors that are threads of one core. It alone, where the system doesn't tell.
std::vector<int> threads_of_core(int core) {
  std::ifstream file(fmt::format("/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list", core));
  std::vector<int> all;
  for (int first = 0; file >> first;) {
    int last = first;
    if (file.peek() == '-') file.ignore(), file >> last;
    for (int c = first; c <= last && c < CPU_SETSIZE; ++c) all.push_back(c);
    if (file.peek() == ',') file.ignore();
  }
  return all.empty() ? std::vector<int>{core} : all;
}

CopyCore find() {
  CopyCore found;
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) != 0) return found;  // a mask too large for the set
  found.allowed = CPU_COUNT(&set);
  for (int c = CPU_SETSIZE - 1; c >= 0 && found.core < 0; --c) {
    if (CPU_ISSET(c, &set)) found.core = c;
  }
  for (const int c : threads_of_core(std::max(0, found.core))) {
    if (CPU_ISSET(c, &set)) found.taken.push_back(c);
  }
  if (static_cast<int>(found.taken.size()) >= found.allowed) found.core = -1;
  return found;
}

}  // namespace

const CopyCore& copy_core() {
  static const CopyCore found = find();
  return found;
}

Support copy_core_available() {
  const CopyCore& core = copy_core();
  if (core.core >= 0) return Support::yes();
  return Support::no(core.allowed == 0 ? std::string("the processors of this process are not known")
                                       : fmt::format("this process has one core ({} processors), and none to spare "
                                                     "for copies",
                                                     core.allowed));
}

OffCopyCore::OffCopyCore() {
  if (copy_core().core < 0 || sched_getaffinity(0, sizeof before_, &before_) != 0) return;
  cpu_set_t left = before_;
  for (const int c : copy_core().taken) CPU_CLR(c, &left);
  moved_ = CPU_COUNT(&left) > 0 && sched_setaffinity(0, sizeof left, &left) == 0;
}

OffCopyCore::~OffCopyCore() {
  if (moved_) sched_setaffinity(0, sizeof before_, &before_);
}

}  // namespace heddle::comm
