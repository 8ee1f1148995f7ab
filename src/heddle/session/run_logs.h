// Files that a run writes only to be looked at: metrics, TensorBoard's events, the report, the trace. The disk may
// refuse any of it without harm to the training: the first failure of each is reported, and the run goes on.
#pragma once

#include <functional>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "heddle/observe/experts/load_frames.h"
#include "heddle/observe/metrics_log.h"
#include "heddle/observe/report.h"
#include "heddle/observe/tensorboard.h"
#include "heddle/session/run_folder.h"

namespace heddle::session {

class RunLogs {
 public:
  /// `warn` receives each failure once, in one line.
  RunLogs(const RunFolder& folder, std::function<void(const std::string&)> warn);

  void begin();
  /// Goes on with the logs of a run whose next step this is.
  void resume(int64_t next_step);

  /// Adds a place that gets every step from now on; `what` names it where it fails.
  void also_to(std::string what, std::function<void(const observe::StepMetrics&)> add);
  void add(const observe::StepMetrics& metrics);
  bool write_report(const observe::ReportData& data);
  bool write_trace(const observe::Timeline& timeline);
  /// Does what only serves those who look on, reports a failure of it in the same way, and returns whether it went
  /// well.
  bool attempt(const std::string& what, const std::function<void()>& body);

  /// The steps so far, those before a resume included.
  const std::vector<observe::StepMetrics>& history() const { return history_; }

 private:
  RunFolder folder_;
  std::function<void(const std::string&)> warn_;
  std::unique_ptr<observe::MetricsLog> metrics_;
  std::unique_ptr<observe::TensorboardFile> tensorboard_;
  std::vector<std::pair<std::string, std::function<void(const observe::StepMetrics&)>>> others_;
  std::vector<observe::StepMetrics> history_;
  observe::LoadFrames frames_;
  std::set<std::string> told_;
};

}  // namespace heddle::session
