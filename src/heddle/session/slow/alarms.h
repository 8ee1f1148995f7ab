// Reports slow ranks and links: on the terminal, in a file for programs, and to the user's own program.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "heddle/session/run_folder.h"
#include "heddle/session/slow/alarm.h"
#include "heddle/session/slow/alarm_command.h"

namespace heddle::session {

class RunLogs;

class Alarms {
 public:
  using Warn = std::function<void(const std::string& line)>;
  /// `run`: its name. `command`: the user's program (slow/alarm_command.h).
  Alarms(std::string run, RunFolder folder, const std::string& command, Warn warn);

  /// `step`: the last that is done. The logs report a file that the disk refuses.
  void tell(const std::vector<Alarm>& alarms, int64_t step, RunLogs& logs);
  AlarmCommand& command() { return command_; }

 private:
  std::string run_;
  RunFolder folder_;
  Warn warn_;
  AlarmCommand command_;
};

}  // namespace heddle::session
