#include "heddle/planner/rated_profile.h"

#include "heddle/device/host/allowed_cores.h"

namespace heddle::planner {

cost::MachineProfile rated_profile() {
  cost::MachineProfile profile;
  profile.cores = device::allowed_cores();
  profile.bf16_flops_per_s = 2e11 * profile.cores;
  profile.f32_flops_per_s = profile.f64_flops_per_s = 5e10 * profile.cores;
  profile.copy_bytes_per_s = 1e10;
  profile.launch_us = 2;
  profile.enqueue_us = 1;
  return profile;
}

}  // namespace heddle::planner
