// The answer for a configuration on this machine: the program that would run, counted and simulated.
#pragma once

#include "advisor/answer/plan_answer.h"

namespace heddle::advisor {

/// Bytes are those that `heddle inspect` prints, seconds those of `heddle simulate`, by the machine's profile where
/// `heddle profile` has kept one, else by rated figures of a core. The changes are tried for so many seconds.
PlanAnswer answer_config_here(const PlanRequest& request, const PlanWatch& watch, double seconds);

/// "KEY=VALUE" of the request: its settings, and its sizes where they are given.
std::vector<std::string> settings_of(const PlanRequest& request);

}  // namespace heddle::advisor
