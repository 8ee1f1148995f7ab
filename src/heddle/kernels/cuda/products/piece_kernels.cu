// Numbers of f32 as pieces of bf16, and sums of what their products are. See piece_kernels.h.
#include "heddle/kernels/cuda/language.h"
#include "heddle/kernels/cuda/products/piece_kernels.h"

namespace heddle::kernels::cuda {

HEDDLE_KERNEL void HEDDLE_BOUNDS(256) split_numbers(SplitArgs args) {
  const int64_t all = args.rows * args.columns, step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < all; i += step) {
    Bf16 piece[kPieces];
    float left = args.from[i];
    HEDDLE_UNROLL
    for (int p = 0; p < kPieces; ++p) {
      piece[p] = rounded<Bf16>(left);
      left -= to_float(piece[p]);
    }
    Bf16* to = args.to + i / args.columns * args.pitch + i % args.columns;
    HEDDLE_UNROLL
    for (int j = 0; j < kMostPieces; ++j) {
      if (j < args.count)
        to[j * args.step] = args.piece[j] == 0 ? piece[0] : args.piece[j] == 1 ? piece[1] : piece[2];
    }
  }
}

HEDDLE_KERNEL void HEDDLE_BOUNDS(256) sum_pieces(SumPiecesArgs args) {
  const int64_t all = args.rows * args.columns, step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < all; i += step) {
    const int64_t column = i % args.columns;
    const float* from = args.from + i / args.columns * args.pitch + column;
    float sum = from[0] + from[args.step] + from[2 * args.step];
    if (args.bias != nullptr) sum += args.bias[column];
    args.to[i] = args.add ? args.to[i] + sum : sum;
  }
}

}  // namespace heddle::kernels::cuda
