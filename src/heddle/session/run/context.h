// The state that the services of a run share. `prepare_run` fills it (run/prepare.h); the run and its services use
// it (training_run.h, services/service.h). State of one service alone is that service's.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "heddle/config/run_config.h"
#include "heddle/session/ranks/patience.h"
#include "heddle/session/run/folder_watch.h"
#include "heddle/session/run/keeping.h"
#include "heddle/session/run/peak.h"
#include "heddle/session/run/place.h"
#include "heddle/session/run/summary.h"
#include "heddle/session/run/terminal.h"

namespace heddle::data {
class Tokenizer;
}
namespace heddle::train {
class Trainer;
}

namespace heddle::session {

class Alarms;
class RankWatch;
class RunLogs;
class Service;
struct RunData;

struct RunContext {
  RunContext(config::RunConfig config, bool resumes, Telling telling, RankPlace place);
  ~RunContext();

  bool leads() const;
  /// True if the last step is done.
  bool is_over() const;
  void warn(const std::string& text) { terminal.warn(text); }
  /// Reports on rank 0 where the folder has another name now. SystemError where it was removed.
  void look_at_folder();
  /// Sets the answer to a user whose signal arrives while the run is busy with `doing`.
  void answer_signals(const std::string& doing) const;
  /// Sequences of the next step.
  int64_t next_batch() const;
  /// Does work that takes longer than a step, between steps: `limit` sets the patience for it. All ranks call it
  /// together. Afterwards none is left alone in `body`, and the limit is a step's again.
  void within(const std::function<void()>& limit, const std::function<void()>& body);
  /// The digest of the weights after the last step; "": it was not taken.
  std::string digest_now() const;

  config::RunConfig config;
  const bool resumes;  // goes on from the newest state of its folder
  const Telling telling;
  const RankPlace place;
  RunFolder folder;
  std::unique_ptr<RunData> data;
  std::map<std::string, std::string> data_identity;
  std::unique_ptr<data::Tokenizer> tokenizer;  // null: the tokens came without one
  std::unique_ptr<train::Trainer> trainer;
  PredictedPeak peak;
  std::optional<FolderWatch> folder_watch;
  RunTerminal terminal;
  std::unique_ptr<RunLogs> logs;     // rank 0's
  std::unique_ptr<Alarms> alarms;    // rank 0's
  std::unique_ptr<RankWatch> ranks;  // finds slow ranks
  Patience patience;
  Keeping keeping;
  RunSummary summary;
  std::vector<std::unique_ptr<Service>> services;
};

}  // namespace heddle::session
