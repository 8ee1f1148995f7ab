// Choices of experts as choices of slots. A block scans all choices in order for those of its expert; nothing is
// added atomically.
#include "heddle/kernels/cuda/experts/routing_kernels.h"
#include "heddle/kernels/cuda/experts/slot_kernels.h"
#include "heddle/kernels/cuda/language.h"

namespace heddle::kernels::cuda {

HEDDLE_KERNEL void HEDDLE_BOUNDS(kListThreads) count_experts(device::CountExperts args) {
  HEDDLE_SHARED(int, of_warps, kListThreads / kWarp);
  const int64_t expert = blockIdx.x;
  int count = 0;
  for (int64_t i = threadIdx.x; i < args.choices; i += kListThreads) count += args.experts[i] == expert ? 1 : 0;
  count = block_sum(count, of_warps);
  if (threadIdx.x == 0) args.rows_E[expert] = count;
}

HEDDLE_KERNEL void HEDDLE_BOUNDS(kListThreads) put_in_slots(device::PutInSlots args) {
  HEDDLE_SHARED(unsigned, votes, kListThreads / kWarp);
  const int64_t expert = blockIdx.x;
  int next = 0;
  for (int64_t first = 0; first < args.choices; first += kListThreads) {
    const int64_t i = first + threadIdx.x;
    const bool mine = i < args.choices && args.experts[i] == expert;
    int all = 0;
    const int order = next + count_before(mine, votes, all);
    next += all;
    if (!mine) continue;
    int32_t run = args.first_E[expert];
    while (order >= args.end_R[run]) ++run;
    args.slots[i] = args.slot_R[run];
  }
}

}  // namespace heddle::kernels::cuda
