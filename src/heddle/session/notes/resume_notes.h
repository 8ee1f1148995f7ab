// Changes where a run goes on: reported, a line each; none of them is refused.
#pragma once

#include <string>
#include <vector>

#include "heddle/base/dtype.h"
#include "heddle/session/run_folder.h"
#include "heddle/train/checkpoint.h"

namespace heddle::session {

/// Settings that differ from those in the run's config.toml, a learning rate that had fallen and rises again, and
/// the type that weights and activations had; `dtype` is what they have now. `from` is null where the run begins
/// anew.
std::vector<std::string> resume_notes(const RunFolder& folder, const config::RunConfig& config,
                                      const train::CheckpointState* from, Dtype dtype);

}  // namespace heddle::session
