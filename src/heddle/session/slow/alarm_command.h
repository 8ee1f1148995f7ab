// A user's program that is run when something is slow: it reads one JSON object from its standard input, beside the
// training, and has a bounded time. Whatever becomes of it, the run goes on.
#pragma once

#include <sys/types.h>

#include <functional>
#include <string>
#include <vector>

namespace heddle::session {

class AlarmCommand {
 public:
  using Warn = std::function<void(const std::string& line)>;
  /// `command`: a program and its arguments, parted by blanks; no shell reads them. Empty: nothing is ever run.
  AlarmCommand(const std::string& command, Warn warn, double limit_s = 30);
  /// Kills commands that still run.
  ~AlarmCommand();
  AlarmCommand(const AlarmCommand&) = delete;
  AlarmCommand& operator=(const AlarmCommand&) = delete;

  /// Starts it and waits for nothing.
  void run(const std::string& text);
  /// Takes the ends of those that have ended, and ends those whose time is over.
  void poll();
  /// Waits for all, none longer than its time.
  void finish();

 private:
  struct Started {
    pid_t process;
    double until_s;
  };
  void warn(const std::string& what);
  std::vector<std::string> words_;
  Warn warn_;
  double limit_s_;
  std::vector<Started> started_;
  bool told_ = false;  // the first failure was reported
};

}  // namespace heddle::session
