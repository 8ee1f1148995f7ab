#include "heddle/kernels/cuda/language.h"
#include "heddle/kernels/cuda/products/sum_operands.h"

namespace heddle::kernels::cuda {

HEDDLE_KERNEL void sum_operands(SumOperandsArgs args) {
  const int64_t e = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (e >= args.groups) return;
  const int64_t first = args.offsets[e], rows = args.offsets[e + 1] - first;
  args.to.sizes[e * 3] = rows > 0 ? static_cast<int32_t>(args.N) : 0;
  args.to.sizes[e * 3 + 1] = rows > 0 ? static_cast<int32_t>(args.K) : 0;
  args.to.sizes[e * 3 + 2] = static_cast<int32_t>(rows);
  args.to.dy[e] = static_cast<const Bf16*>(args.dy) + first * args.N;
  args.to.x[e] = static_cast<const Bf16*>(args.x) + first * args.K;
  args.to.acc[e] = args.acc + e * args.N * args.K;
  args.to.dy_pitch[e] = args.N;
  args.to.x_pitch[e] = args.to.acc_pitch[e] = args.K;
}

HEDDLE_KERNEL void clear_idle(ClearIdleArgs args) {
  const int64_t e = blockIdx.y;
  if (args.offsets[e + 1] > args.offsets[e]) return;
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < args.each; i += step)
    args.acc[e * args.each + i] = 0;
}

}  // namespace heddle::kernels::cuda
