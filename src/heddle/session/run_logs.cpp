#include "heddle/session/run_logs.h"

#include <utility>

#include "heddle/base/error.h"
#include "heddle/observe/perfetto.h"

namespace heddle::session {

RunLogs::RunLogs(const RunFolder& folder, std::function<void(const std::string&)> warn)
    : folder_(folder), warn_(std::move(warn)) {}

bool RunLogs::attempt(const std::string& what, const std::function<void()>& body) {
  try {
    body();
    return true;
  } catch (const SystemError& error) {
    if (told_.insert(what).second) warn_(fmt::format("{}; training goes on", error.what()));
    return false;
  }
}

void RunLogs::begin() {
  attempt("metrics",
          [&] { metrics_ = std::make_unique<observe::MetricsLog>(observe::MetricsLog::begin(folder_.metrics())); });
  attempt("tensorboard", [&] { tensorboard_ = std::make_unique<observe::TensorboardFile>(folder_.tensorboard()); });
}

void RunLogs::resume(int64_t next_step) {
  attempt("metrics", [&] {
    std::vector<std::string> warnings;
    metrics_ =
        std::make_unique<observe::MetricsLog>(observe::MetricsLog::resume(folder_.metrics(), next_step, warnings));
    for (const std::string& warning : warnings) warn_(warning);
    history_ = observe::read_metrics(folder_.metrics(), observe::BrokenLines::skip).steps;
    frames_ = observe::LoadFrames(history_);
  });
  attempt("tensorboard", [&] { tensorboard_ = std::make_unique<observe::TensorboardFile>(folder_.tensorboard()); });
}

void RunLogs::also_to(std::string what, std::function<void(const observe::StepMetrics&)> add) {
  others_.emplace_back(std::move(what), std::move(add));
}

void RunLogs::add(const observe::StepMetrics& metrics) {
  if (metrics_) attempt("metrics", [&] { metrics_->add(metrics); });
  if (tensorboard_) attempt("tensorboard", [&] { tensorboard_->add(metrics); });
  for (const auto& [what, add] : others_) attempt(what, [&, &tell = add] { tell(metrics); });
  history_.push_back(metrics);
  frames_.added(history_);
}

bool RunLogs::write_report(const observe::ReportData& data) {
  return attempt("report", [&] { heddle::observe::write_report(folder_.report(), data); });
}

bool RunLogs::write_trace(const observe::Timeline& timeline) {
  return attempt("trace", [&] {
    observe::PerfettoTrace file(folder_.trace());
    file.add(timeline);
    file.close();
  });
}

}  // namespace heddle::session
