// The event of a ring that stands for the end of a launch, when events are used again.
#pragma once

#include <cstdint>

namespace heddle::device {

/// Launch n (from 1 on) records event (n − 1) mod ring. For one whose event has been used again since, the oldest
/// that is kept: it ends later, never earlier.
constexpr uint64_t event_for(uint64_t count, uint64_t launched, uint64_t ring) {
  const uint64_t oldest = launched > ring ? launched - ring + 1 : 1;
  return ((count < oldest ? oldest : count) - 1) % ring;
}

}  // namespace heddle::device
