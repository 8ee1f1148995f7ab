// Where a run keeps what it makes, and who may write there.
//
//   config.toml     the whole configuration      metrics.jsonl   a line a step        tokenizer.json
//   checkpoints/    step-000123/                 tensorboard/    events               trace.perfetto
//   ops/            step-000123/rank-0000.ops: digests of what ops have made
//   ranks/          of a run on several: what each waits for (comm/calls), while it runs or where it died
//   alarms.jsonl    slow ranks and links, a line each time one is found or is over; op_times.json: level 2
//   job.jsonl       what the supervisor of a job saw and did; .generation: which of its starts may write
//   report.html     loss, speed, memory, ops of one step, sample text
//   references.bin  of a run that learns from pairs: their losses under its first weights
//   .lock           held by the run that writes here
//
// config.toml comes first: a folder with it holds a run, which `--resume` goes on with, from its beginning where no
// checkpoint was written yet; a folder without it is free, whatever else a run that was killed has left there.
#pragma once

#include <string>
#include <vector>

#include "heddle/base/files/folder_lock.h"
#include "heddle/config/run_config.h"
#include "heddle/data/tokenizer/files/tokenizer_files.h"

namespace heddle::session {

struct RunFolder {
  std::string path;

  std::string config() const { return path + "/config.toml"; }
  std::string metrics() const { return path + "/metrics.jsonl"; }
  /// The tokenizer that the folder keeps (tokenizer.json, tokenizer.model or tokenizer.tiktoken), or "".
  std::string tokenizer() const { return data::tokenizer_in(path); }
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

/// A run's folder that no other run writes into as long as this lives; what a run that was killed left unfinished
/// there is gone.
struct HeldFolder {
  RunFolder folder;
  FolderLock lock;
  std::vector<std::string> warnings;
};

/// The folder of a new run, made: `config.output`, which must not hold a run yet (ConfigError), or the first free
/// one of runs/NAME, runs/NAME-2, … SystemError when it can't be made.
HeldFolder new_run_folder(const config::RunConfig& config);

/// Where the run to go on with lies, found as below but not held; "" where there is none.
std::string path_of_existing_run(const config::RunConfig& config);

/// The folder of the run to go on with: `config.output`, or the newest of runs/NAME, runs/NAME-2, … ConfigError
/// when there is none, or when another run writes there.
HeldFolder existing_run_folder(const config::RunConfig& config);

}  // namespace heddle::session
