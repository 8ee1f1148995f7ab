// The programs that a launch can be said to: Heddle, Megatron-LM, MindSpeed.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "advisor/words.h"
#include "heddle/observe/plans/plan_page.h"

namespace heddle::advisor {

/// "heddle", "megatron", "mindspeed"
const std::vector<std::string>& emit_targets();

/// Returns why this launch can't be expressed for the target, a line each; empty when it can. ConfigError for an
/// unknown target.
std::vector<std::string> refusals_of(const Launch& launch, std::string_view target);

/// A configuration of Heddle as `heddle train` and `heddle inspect` read it, or another trainer's script.
/// ConfigError with the first refusal, or for an unknown target.
std::string launch_text(const Launch& launch, std::string_view target);

/// The launch for every target, or why that can't run it.
std::vector<observe::SaidLaunch> said_to_all(const Launch& launch);

}  // namespace heddle::advisor
