// The ranks of one generation: their launcher and what they say. Those of a standby are started ahead of their
// turn, wait for it (base/files/fence.h), and are not heard before it.
#pragma once

#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "heddle/base/files/fence.h"
#include "heddle/job/child.h"

namespace heddle::job {

class Ranks {
 public:
  /// `prints`: standard output goes out line by line, besides being kept. `end_signal`: the launcher's. SystemError
  /// where that can't be started.
  Ranks(Fence fence, const std::vector<std::string>& words, Environment environment, bool prints, int end_signal);
  Ranks(const Ranks&) = delete;
  Ranks& operator=(const Ranks&) = delete;

  const Fence& fence() const { return fence_; }
  /// Lines go out from now on, those that were held first.
  void be_heard();
  /// As Child has them: the launcher's.
  std::optional<int> poll(double seconds) { return child_.poll(seconds); }
  void signal(int number) const { child_.signal(number); }
  void kill() { child_.kill(); }
  pid_t process() const { return child_.process(); }

  const std::string& out() const { return out_; }
  /// The last lines of standard error.
  std::vector<std::string> said() const { return {said_.begin(), said_.end()}; }

 private:
  Fence fence_;
  bool prints_, heard_ = false;
  std::string out_;
  std::deque<std::string> said_;
  Child child_;
};

}  // namespace heddle::job
