// Choices of experts as choices of slots, where experts have copies. The arguments: device/exchange_work.h.
#pragma once

#include "heddle/device/exchange_work.h"
#include "heddle/kernels/cuda/arguments.h"

namespace heddle::kernels::cuda {

/// A block an expert, of kListThreads threads.
HEDDLE_KERNEL void count_experts(device::CountExperts args);
HEDDLE_KERNEL void put_in_slots(device::PutInSlots args);

}  // namespace heddle::kernels::cuda
