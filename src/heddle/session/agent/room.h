// Room for the copies that a run keeps of its state in memory. Copies are a redundancy: a run goes on without them
// where a host has no room.
#pragma once

#include <string>

#include "heddle/comm/world.h"
#include "heddle/train/trainer.h"

namespace heddle::session {

/// Why the copies of all ranks do not have room at the same time, as the first rank that has none says it; "": they
/// have. Takes that room for a moment, in `options.snapshots.folder`. All ranks call it together.
std::string no_room_for_copies(const train::TrainerOptions& options, comm::World* world);

}  // namespace heddle::session
