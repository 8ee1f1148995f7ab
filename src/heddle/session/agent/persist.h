// Writes copies in memory to disk: an agent writes the shards of its host's ranks, as the ranks would
// (train/saved/shard.h). An agent that finds those of all ranks there commits them.
//
// All agents of a job write into one hidden folder of the checkpoints', named after step, generation and job. Each
// shard has its manifest's part beside it. A job that was gone on with has a higher generation; files of the one
// before are left alone.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "heddle/session/run_folder.h"
#include "heddle/train/saved/segment.h"

namespace heddle::session {

struct Persisted {
  std::string path;   // path of the checkpoint; "": other hosts' shards are not there yet
  int64_t bytes = 0;  // bytes that were written
  double seconds = 0;
};

/// Writes the sets of `step` of these segments, of one job. Their checksums are compared before and after.
/// ConfigError where memory is damaged or the job is not the run's last, SystemError where the disk says no.
Persisted persist(const RunFolder& folder, const std::vector<std::shared_ptr<const train::Segment>>& segments,
                  int64_t step);

/// Removes unfinished files of agents for steps up to this one, which are on disk or which nobody will finish.
void remove_pending(const RunFolder& folder, int64_t step);

}  // namespace heddle::session
