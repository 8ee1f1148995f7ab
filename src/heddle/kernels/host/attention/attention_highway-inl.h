// Parts that the Highway attention kernels share. They copy rows of a head and widen them to fp32 in the forms that
// the products read; padding is always written, never assumed. The one product is  C[m][n] (+)= Σ_k A(m,
// k)·B[k][n].
#if defined(HEDDLE_KERNELS_HOST_ATTENTION_HIGHWAY_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef HEDDLE_KERNELS_HOST_ATTENTION_HIGHWAY_INL_H
#undef HEDDLE_KERNELS_HOST_ATTENTION_HIGHWAY_INL_H
#else
#define HEDDLE_KERNELS_HOST_ATTENTION_HIGHWAY_INL_H
#endif

#include <algorithm>
#include <cstring>

#include "heddle/kernels/host/attention/attention_highway_scratch.h"
#include "heddle/kernels/host/gemm/gemm_highway_panels-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heddle::kernels::host::HWY_NAMESPACE {

using attention::kStep;
using attention::Problem;
using attention::round_up;
using attention::Task;
using attention::highway::kPad;

/// The rows of one head of one sequence.
template <class X>
struct HeadRows {
  X* data;
  int64_t stride, width;
  X* row(int64_t at) const { return data + at * stride; }
};

/// X is const for a tensor that is read.
template <class X, class Data>
HWY_INLINE HeadRows<X> query_rows(const Task& task, Data* tensor, int64_t head, int64_t width) {
  const int64_t stride = task.problem.heads * width;
  return {static_cast<X*>(tensor) + task.problem.first_query(task.unit) * stride + head * width, stride, width};
}
template <class X, class Data>
HWY_INLINE HeadRows<X> key_rows(const Task& task, Data* tensor, int64_t width) {
  const Problem& p = task.problem;
  const int64_t stride = p.kv_heads * width;
  return {static_cast<X*>(tensor) + p.first_key(task.unit) * stride + p.kv_head(task.unit) * width, stride, width};
}

/// to[wanted][to_stride] from `rows` rows of `from` beginning at `first`; the rest is zero.
template <class X>
HWY_INLINE void copy_rows(HeadRows<const X> from, int64_t first, int64_t rows, int64_t wanted, float* to,
                          int64_t to_stride) {
  for (int64_t r = 0; r < wanted; ++r) {
    const int64_t filled = r < rows ? from.width : 0;
    const X* const row = filled != 0 ? from.row(first + r) : nullptr;
    sweep(filled, [&](int64_t i, auto lanes, auto)
                      HEDDLE_BODY { store(load(row + i, lanes), to + r * to_stride + i, lanes); });
    for (int64_t i = filled; i < to_stride; ++i) to[r * to_stride + i] = 0;
  }
}

/// to[rows][width padded], the rows of the given steps.
template <class X>
HWY_INLINE void pack_padded(HeadRows<const X> from, int64_t length, int64_t first_step, int64_t end_step,
                            float* to) {
  const int64_t first = first_step * kStep, end = end_step * kStep, stride = round_up(from.width, kPad);
  copy_rows(from, first, std::min(end, length) - first, end - first, to + first * stride, stride);
}

/// to[step][width][32], the transposed rows of the given steps.
template <class X>
HWY_INLINE void pack_transposed(HeadRows<const X> from, int64_t length, int64_t first_step, int64_t end_step,
                                float* to) {
  for (int64_t row = first_step * kStep; row < end_step * kStep; row += kPanelWidth) {
    float* const panel = to + row / kStep * from.width * kStep + row % kStep;
#if HWY_TARGET != HWY_SCALAR
    if (row + kPanelWidth <= length) {
      transpose_panel(from.row(row), from.stride, from.width, panel, kStep);
      continue;
    }
#endif
    for (int64_t r = 0; r < kPanelWidth; ++r) {
      for (int64_t c = 0; c < from.width; ++c) {
        panel[c * kStep + r] = row + r < length ? static_cast<float>(from.row(row + r)[c]) : 0.0f;
      }
    }
  }
}

/// Writes factor × sums[first .. end), and what was there before, to the rows of one head.
template <class X>
HWY_INLINE void write_rows(HeadRows<X> to, int64_t first, int64_t end, const float* sums, int64_t stride,
                           float factor, const HeadRows<const float>* before = nullptr) {
  const V factor_x = set(factor);
  for (int64_t r = first; r < end; ++r) {
    X* const row = to.row(r);
    sweep(to.width, [&](int64_t i, auto lanes, auto) HEDDLE_BODY {
      const V x = hn::Mul(factor_x, load(sums + r * stride + i, lanes));
      store(before == nullptr ? x : hn::Add(load(before->row(r) + i, lanes), x), row + i, lanes);
    });
  }
}

struct Strided {
  const float* data;
  int64_t row, depth;  // strides of m and k, in floats
};

#if HWY_ARCH_ARM_A64
constexpr int kBlockRows = 8;  // 24 sums of 32 registers
#else
constexpr int kBlockRows = 4;  // 12 sums of 16
#endif
constexpr int kBlockVectors = 3;

template <int vectors>
HWY_INLINE void multiply_rows_by(int64_t depth, Strided a, const float* b, int64_t b_row, float* c, int64_t c_row,
                                 bool add) {
  V sum[kBlockRows][vectors];
#pragma GCC unroll 8
  for (int m = 0; m < kBlockRows; ++m) {
#pragma GCC unroll 3
    for (int n = 0; n < vectors; ++n) sum[m][n] = zero();
  }
  if (add) {
#pragma GCC unroll 8
    for (int m = 0; m < kBlockRows; ++m) {
#pragma GCC unroll 3
      for (int n = 0; n < vectors; ++n) sum[m][n] = load(c + m * c_row + n * kLanes, Whole{});
    }
  }
  const float* at = a.data;
  for (int64_t k = 0; k < depth; ++k, at += a.depth, b += b_row) {
    V row[vectors];
#pragma GCC unroll 3
    for (int n = 0; n < vectors; ++n) row[n] = load(b + n * kLanes, Whole{});
#pragma GCC unroll 8
    for (int m = 0; m < kBlockRows; ++m) {
      const V factor = set(at[m * a.row]);
#pragma GCC unroll 3
      for (int n = 0; n < vectors; ++n) sum[m][n] = hn::MulAdd(factor, row[n], sum[m][n]);
    }
  }
#pragma GCC unroll 8
  for (int m = 0; m < kBlockRows; ++m) {
#pragma GCC unroll 3
    for (int n = 0; n < vectors; ++n) store(sum[m][n], c + m * c_row + n * kLanes, Whole{});
  }
}

/// `rows` is a multiple of 8, `columns` of 8. add: C is read first, else overwritten. Sums run over k in increasing
/// order, one multiply-add a term.
inline HWY_ATTR void multiply(int64_t rows, int64_t columns, int64_t depth, Strided a, const float* b,
                              int64_t b_row, float* c, int64_t c_row, bool add) {
  for (int64_t n = 0; n < columns;) {
    const int64_t left = (columns - n) / kLanes, width = left == 4 ? 2 : std::min<int64_t>(left, kBlockVectors);
    for (int64_t m = 0; m < rows; m += kBlockRows) {
      const Strided block{a.data + m * a.row, a.row, a.depth};
      float* const to = c + m * c_row + n;
      if (width == 3) {
        multiply_rows_by<3>(depth, block, b + n, b_row, to, c_row, add);
      } else if (width == 2) {
        multiply_rows_by<2>(depth, block, b + n, b_row, to, c_row, add);
      } else {
        multiply_rows_by<1>(depth, block, b + n, b_row, to, c_row, add);
      }
    }
    n += width * kLanes;
  }
}

}  // namespace heddle::kernels::host::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
