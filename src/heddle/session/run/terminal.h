// Messages to people while a run trains: lines and warnings on standard error, around the progress bar. Ranks other
// than the first have one too, which stays silent.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "heddle/observe/progress.h"

namespace heddle::session {

class RunTerminal {
 public:
  /// Before `begin`, lines and warnings are kept: `begin` prints the introduction, then the lines, then the
  /// warnings.
  void line(const std::string& text);
  /// Control characters in `text` are escaped.
  void warn(const std::string& text);
  void warn(const std::vector<std::string>& texts);

  /// Rank 0 calls it once, before the first step.
  void begin(const observe::ProgressOptions& options, const std::vector<std::string>& introduction);
  void update(const observe::StepMetrics& metrics);
  /// Leaves the last bar standing. Later lines and warnings are still printed.
  void finish();

 private:
  std::unique_ptr<observe::Progress> progress_;  // null before `begin`
  std::vector<std::string> lines_, warnings_;
};

}  // namespace heddle::session
