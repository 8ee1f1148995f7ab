// A run's introduction of itself, before its first step.
#pragma once

#include <string>
#include <vector>

#include "heddle/session/run/context.h"

namespace heddle::session {

/// Rank 0's lines on model, layout, data, memory and folder.
std::vector<std::string> introduction(const RunContext& run);

/// The device that this thread has chosen, and the libraries that a run on it uses, each with its release and file,
/// or why the own kernels do its work. "": the backend has no device.
std::string devices_text(std::string_view backend, int64_t ranks);

}  // namespace heddle::session
