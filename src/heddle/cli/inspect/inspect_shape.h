// Facts that are known of a published model without lowering it.
#pragma once

#include <string>

namespace heddle::cli {

/// `heddle inspect --model`: parameters and FLOPs of a published model by its name. Returns the exit status.
int inspect_shape(const std::string& model, bool json);

}  // namespace heddle::cli
