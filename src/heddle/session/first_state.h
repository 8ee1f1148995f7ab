// The state from which a run begins at step 0: its seed's, or the weights that it starts from.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "heddle/config/run_config.h"
#include "heddle/train/trainer.h"

namespace heddle::session {

/// Returns notes on the weights; all ranks call it together. `before_adapters` is called while the adapters are
/// none yet, where others are to begin from. ConfigError where weights don't fit.
std::vector<std::string> begin_from_first_state(const config::RunConfig& config, train::Trainer& trainer,
                                                const std::function<void()>& before_adapters = {});

}  // namespace heddle::session
