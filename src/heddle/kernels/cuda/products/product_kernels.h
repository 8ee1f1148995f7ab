// Matrix products, one or one an expert. M, N: rows and columns of c; K: what is summed.
#pragma once

#include "heddle/kernels/cuda/arguments.h"

namespace heddle::kernels::cuda {

constexpr int kProductM = 128, kProductN = 128, kProductThreads = 256, kProductStages = 3;

/// How experts cut a product: not at all; by rows of a and c (each expert its own b). Sums: by the summed dimension
/// (each its own c). Batch: by matrices of one size, one behind the other, of all three.
enum class Groups : int32_t { none, rows, sums, batch };

struct ProductArgs {
  const void *a, *b;
  void* c;
  const float* bias_N;     // or null
  const int32_t* offsets;  // [groups + 1], on the device; null without groups and of a batch
  int64_t M, N, K;         // all rows, all sums; of a batch, one matrix's
  int64_t a_pitch, b_pitch, c_pitch;
  int64_t group_stride;  // of b or c, in elements
  int64_t groups;
  Groups cut;
  bool wide;    // c is f32, else of the type of a
  bool add;     // to c, f32
  bool narrow;  // c is bf16 though a is f32
};

/// c (+)= a·b (+ bias). a_by_k: a lies [K, M], else [M, K]; b_by_k: b lies [K, N], else [N, K]. X: the type of a,
/// b. The sum of an element is in increasing k and does not depend on M, N or the other rows. Blocks:
/// product_shape.
template <class X, bool a_by_k, bool b_by_k>
HEDDLE_KERNEL void product(ProductArgs args);

}  // namespace heddle::kernels::cuda
