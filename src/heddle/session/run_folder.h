// The folder in which a run keeps what it makes, and its lock.
//
//   `config.toml`     The whole configuration. `tokenizer.json`. `trace.perfetto`.
//   `checkpoints/`    step-000123/.
//   `metrics.jsonl`   A line a step. `tensorboard/`: Events.
//   `ops/`            Digests of the results of ops: step-000123/rank-0000.ops.
//   `ranks/`          What each of several ranks waits for (comm/calls), while it runs or where it died.
//   `alarms.jsonl`    Slow ranks and links, a line each time one is found or is over. `op_times.json`: Level 2.
//   `job.jsonl`       Events and actions of the job's supervisor. `.generation`: Which start may write.
//   `report.html`     Loss, speed, memory, ops of one step, sample text.
//   `references.bin`  Losses of the pairs that a run learns from, under its first weights.
//   `.lock`           Held by the run that writes here.
//
// config.toml comes first. A folder with it holds a run, which `--resume` goes on with, from its beginning where no
// checkpoint was written yet. A folder without it is free, whatever else a run that was killed has left there.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "heddle/base/files/folder_lock.h"
#include "heddle/config/run_config.h"

namespace heddle::session {

struct RunFolder {
  std::string path;

  std::string config() const { return path + "/config.toml"; }
  std::string metrics() const { return path + "/metrics.jsonl"; }
  /// The tokenizer that the folder keeps (tokenizer.json, tokenizer.model or tokenizer.tiktoken), or "".
  std::string tokenizer() const;
  std::string checkpoints() const { return path + "/checkpoints"; }
  std::string references() const { return path + "/references.bin"; }
  std::string tensorboard() const { return path + "/tensorboard"; }
  std::string ops() const { return path + "/ops"; }
  std::string ranks() const { return path + "/ranks"; }
  std::string alarms() const { return path + "/alarms.jsonl"; }
  std::string op_times() const { return path + "/op_times.json"; }
  /// Asks a run for them: the number of steps.
  std::string op_times_wanted() const { return path + "/op_times.wanted"; }
  std::string job() const { return path + "/job.jsonl"; }
  std::string trace() const { return path + "/trace.perfetto"; }
  std::string report() const { return path + "/report.html"; }
};

/// ConfigError where there is no run; for a released model it names the command that makes a run of it.
void check_is_run(const RunFolder& folder);

/// A folder that was made for a run, with nothing but its lock in it: it goes again unless the run begins.
class NewFolder {
 public:
  NewFolder() = default;
  explicit NewFolder(std::string path) : path_(std::move(path)) {}
  ~NewFolder();
  NewFolder(NewFolder&& other) noexcept : path_(std::exchange(other.path_, "")) {}
  NewFolder& operator=(NewFolder&& other) noexcept {
    std::swap(path_, other.path_);
    return *this;
  }
  void keep() { path_.clear(); }

 private:
  std::string path_;  // "": none
};

/// A run's folder that no other run writes into as long as this lives. Unfinished files of a run that was killed
/// are gone.
struct HeldFolder {
  RunFolder folder;
  FolderLock lock;
  NewFolder made;
  std::vector<std::string> warnings;
};

/// The folder of a new run, made: `config.output`, which must not hold a run yet (ConfigError), or the first free
/// one of runs/NAME, runs/NAME-2, … SystemError when it can't be made.
HeldFolder new_run_folder(const config::RunConfig& config);

/// The place of the run to go on with, found as below but not held; "" where there is none.
std::string path_of_existing_run(const config::RunConfig& config);

/// The folder of the run to go on with: `config.output`, or the newest of runs/NAME, runs/NAME-2, … ConfigError
/// when there is none, or when another run writes there.
HeldFolder existing_run_folder(const config::RunConfig& config);

}  // namespace heddle::session
