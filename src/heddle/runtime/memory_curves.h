// Predicts the contents of a rank's memories over a training step: the executor's walk with nobody to issue to,
// watched.
#pragma once

#include <string_view>
#include <vector>

#include "heddle/simulate/memory_log.h"
#include "heddle/simulate/recording.h"

namespace heddle::runtime {

/// Curves of the device, and of the host's memories that hold anything. `duration_us`: how long ops of the compute
/// stream last, one after the other. Rows as many as balanced experts receive, `crowding` times.
std::vector<simulate::MemoryCurve> predict_memory_curves(const ir::StepProgram& program, int rank,
                                                         std::string_view backend,
                                                         const simulate::DurationUs& duration_us,
                                                         double crowding = 1);

}  // namespace heddle::runtime
