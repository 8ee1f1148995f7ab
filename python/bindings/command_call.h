// A command of the engine, called from Python. It runs on a thread of its own without the GIL. The caller's thread
// delivers to Python what the command reports, and looks for KeyboardInterrupt.
#pragma once

#include <nanobind/nanobind.h>

#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "python/core/core.h"

namespace heddle::python {

class CommandCall {
 public:
  /// Functions that are None are not called. `gently`: a KeyboardInterrupt lets the step under way end, and `run`
  /// returns what there is.
  CommandCall(std::vector<std::string> arguments, nanobind::object line, nanobind::object progress,
              nanobind::object step, bool gently);

  /// Runs the command to its end. Called with the GIL, once. Raises what a Python function raised, after the
  /// command has ended; KeyboardInterrupt; core::Failure.
  core::Answer run();

 private:
  struct Progress {
    std::string what;
    double share;
  };
  void work();
  void take_line(std::string_view text);
  bool take_step(std::string_view json);
  void wait_until_ended();
  bool deliver();
  void stop_for(std::exception_ptr error, bool interrupted);

  const std::vector<std::string> arguments_;
  const nanobind::object line_, progress_, step_;
  const bool gently_;

  std::mutex mutex_;  // guards what follows
  std::condition_variable told_, stepped_;
  std::deque<std::string> lines_;
  std::optional<Progress> newest_;
  std::optional<std::string> step_json_;
  bool goes_on_ = true, ended_ = false;
  core::Answer answer_;
  std::exception_ptr failure_;  // the engine's

  std::exception_ptr raised_;  // Python's
  bool interrupted_ = false;
};

}  // namespace heddle::python
