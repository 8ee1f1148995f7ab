// Layers of each pipeline stage by the flags of a script.
#pragma once

#include <string>

#include "advisor/script/launch_flag_row.h"

namespace heddle::advisor {

/// The layers that the trainer shares among stages: those that do nothing among them, and the embedding and the
/// loss where flags count these as a layer each.
int64_t counted_places(const Reading& r);

/// The stages as --pipeline-model-parallel-layout would say them, "" where they are equal; of more than one rank
/// whose chunks and schedule are read. ConfigError where flags and layers don't go together.
std::string layout_by_flags(const Reading& r);

}  // namespace heddle::advisor
