// Prepares a run up to its first step.
//
// Faults show before anything is waited for or taken: settings, then the folder, then the text, which
// may take hours to prepare, and last the memory.
#pragma once

#include "heddle/session/services/services.h"

namespace heddle::session {

/// Fills the context: data, folder, options that fit, trainer, services, and the first state. All ranks call it
/// together. ConfigError, DoesNotFit, SystemError.
void prepare_run(RunContext& run, const ServiceRows& rows);

}  // namespace heddle::session
