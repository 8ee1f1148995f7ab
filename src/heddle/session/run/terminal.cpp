#include "heddle/session/run/terminal.h"

#include "heddle/session/text/continue_text.h"

namespace heddle::session {

void RunTerminal::line(const std::string& text) {
  if (progress_) {
    progress_->line(text);
  } else {
    lines_.push_back(text);
  }
}

void RunTerminal::warn(const std::string& text) {
  if (progress_) {
    progress_->warning(terminal_text(text));
  } else {
    warnings_.push_back(text);
  }
}

void RunTerminal::warn(const std::vector<std::string>& texts) {
  for (const std::string& text : texts) warn(text);
}

void RunTerminal::begin(const observe::ProgressOptions& options, const std::vector<std::string>& introduction) {
  progress_ = std::make_unique<observe::Progress>(options, 2);
  for (const std::string& text : introduction) line(text);
  for (const std::string& text : lines_) line(text);
  for (const std::string& text : warnings_) warn(text);
}

void RunTerminal::update(const observe::StepMetrics& metrics) { progress_->update(metrics); }

void RunTerminal::finish() {
  if (progress_) progress_->finish();
}

}  // namespace heddle::session
