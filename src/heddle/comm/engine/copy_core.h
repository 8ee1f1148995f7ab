// The core that a process gives to copies, taken away from everything that computes.
#pragma once

#include <sched.h>

#include <vector>

#include "heddle/base/error.h"

namespace heddle::comm {

struct CopyCore {
  int core = -1;           // the last that the process may use
  std::vector<int> taken;  // it, and the other threads of the same core, which would share its units
  int allowed = 0;         // processors that the process may use in all
};

/// The core, among the processors that the process could use when this was first asked. Processes that share a set
/// of them find the same core. There is no core where there is none to spare: `taken` would be all.
const CopyCore& copy_core();
/// Support::yes if there is one, else why not.
Support copy_core_available();

/// Keeps the calling thread, and what it starts from now on, off that core for as long as it lives.
class OffCopyCore {
 public:
  OffCopyCore();
  ~OffCopyCore();
  OffCopyCore(const OffCopyCore&) = delete;
  OffCopyCore& operator=(const OffCopyCore&) = delete;

 private:
  cpu_set_t before_;
  bool moved_ = false;
};

}  // namespace heddle::comm
