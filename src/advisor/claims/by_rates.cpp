// Claims that rated figures of devices answer.
#include "advisor/claims/computed.h"
#include "heddle/cost/accelerator.h"

namespace heddle::advisor {

// The rate of a package of two dies inside the super-node, over a 910B's card to other nodes.
double bandwidth_of_super_node() {
  constexpr double kDies = 2;
  return kDies * cost::accelerator_named("Ascend-910C")->inner.bytes_per_s /
         cost::accelerator_named("Ascend-910B")->outer.bytes_per_s;
}

// A device's share of 1 TB goes to the memory of its host; training waits for no more. Links reach four fifths.
double seconds_of_checkpoint() {
  constexpr double kBytes = 1e12, kDevices = 1000, kAttained = 0.8;
  return kBytes / kDevices / (kAttained * cost::accelerator_named("C500")->host_bytes_per_s);
}

// A fault strikes a step in its middle. Ranks run again, and do the steps since the last copy again: a copy of each
// step in memory, or one in ten on the disk. As measured (./dev bench goodput): a step of 19.5 s; ranks that stand
// by run again after 0.8 s, ranks that must start first after 3 s.
double lost_time_of_memory_copies() {
  constexpr double kStep = 19.5, kStandby = 0.8, kRestart = 3, kEvery = 10;
  const double memory = kStandby + kStep / 2, disk = kRestart + kEvery * kStep / 2;
  return memory / disk - 1;
}

}  // namespace heddle::advisor
