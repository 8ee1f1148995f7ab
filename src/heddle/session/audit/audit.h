// Steps of a run trained again, to see whether their weights come out the same.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "heddle/comm/world.h"
#include "heddle/config/run_config.h"
#include "heddle/session/run_folder.h"

namespace heddle::session {

struct AuditedStep {
  int64_t step = 0;
  std::string recorded, audited;  // digests of the weights; recorded: "" where the run has taken none
  bool differs() const { return !recorded.empty() && recorded != audited; }
};

struct Audit {
  int64_t from = 0;                // the checkpoint's step; 0: the run's beginning
  std::string trusts, trusted_by;  // that checkpoint's path, and the evidence for it; "": the run's beginning
  std::vector<AuditedStep> steps;  // steps to the last one, or to the first that differs
  int64_t compared = 0;            // steps of which the run has a digest
  std::string first_op;            // the first that made something else than in the run; "": none, or not recorded
  bool ops_recorded = false;       // whether they are for the step that differs
  std::vector<std::string> notes;
  bool agrees() const { return steps.empty() || !steps.back().differs(); }
};

/// Trains steps `first` to `last` of the run again, with `config`: the run's own, in the same layout or another
/// under which digests hold. All ranks call it together; rank 0's is whole. `progressed` receives each step.
/// ConfigError where the run has no such steps, no digest of any, or can't be trained again from what it has kept.
Audit audit(const RunFolder& folder, const config::RunConfig& config, int64_t first, int64_t last,
            comm::World* world, const std::function<void(int64_t step)>& progressed);

}  // namespace heddle::session
