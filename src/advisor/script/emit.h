// A launch as a bash script for Megatron-LM or MindSpeed. What the trainer can't do is refused in one line, never
// left out.
#pragma once

#include <string>
#include <vector>

#include "advisor/script/dialect.h"
#include "advisor/words.h"

namespace heddle::advisor {

/// Returns why the trainer can't run this, a line each; empty when it can.
std::vector<std::string> refusals_of(const Launch& launch, Dialect dialect);

/// The script. ConfigError with the first refusal.
std::string emit(const Launch& launch, Dialect dialect);

/// The script, without the check.
std::string script_text(const Launch& launch, Dialect dialect);
/// Returns what the trainer's flags can't say of the model, the degrees and the switches.
std::vector<std::string> script_refusals(const Launch& launch, Dialect dialect);

/// Returns a word as a shell must receive it: single-quoted where it would read more into it.
std::string shell_quoted(const std::string& word);
/// Number of hardware queues that the launch wants, and "export CUDA_DEVICE_MAX_CONNECTIONS=…".
int connections_of(const Launch& launch, Dialect dialect);
std::string connections_line(const Launch& launch, Dialect dialect);

}  // namespace heddle::advisor
