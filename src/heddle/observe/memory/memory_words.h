// The moment when a memory held most, in sentences.
#pragma once

#include <string>

#include "heddle/simulate/memory_log.h"

namespace heddle::observe {

/// "Device memory", "Host memory", "Memory beyond the process".
std::string memory_name(ir::Space space);

/// Sentences on the peak: when it was, what began then, whose activations were alive, what else came and went, and
/// the largest values.
std::string peak_words(const simulate::MemoryCurve& curve);

}  // namespace heddle::observe
