// A launch as what a training program runs: settings of Heddle, or a bash script for Megatron-LM or MindSpeed. What
// the target can't do is refused in one line, never left out. planner/launch_text.h writes Heddle's configuration.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "heddle/search/launch/launch.h"

namespace heddle::search {

/// "heddle", "megatron", "mindspeed"
const std::vector<std::string>& emit_targets();

/// Why this launch can't be said to the target, a line each; empty when it can. ConfigError for an unknown target.
std::vector<std::string> refusals_of(const Launch& launch, std::string_view target);

/// The script of another trainer. ConfigError with the first refusal.
std::string emit(const Launch& launch, Dialect dialect);

/// A word as a shell must be given it: single-quoted where it would read more into it.
std::string shell_quoted(const std::string& word);
/// "export CUDA_DEVICE_MAX_CONNECTIONS=…": how many hardware queues the launch wants.
std::string connections_line(const Launch& launch, Dialect dialect);

/// The script, without the check.
std::string script_text(const Launch& launch, Dialect dialect);
/// "key=value" as `heddle train --set` takes them, without the check.
std::vector<std::string> heddle_settings(const Launch& launch);

/// What of Heddle runs on such a device; "" where nothing does.
std::string_view heddle_backend(const cost::Accelerator& device);
/// Of the model and the job; refusals_of also knows devices without a backend.
std::vector<std::string> heddle_refusals(const Launch& launch);
std::vector<std::string> script_refusals(const Launch& launch, Dialect dialect);

}  // namespace heddle::search
