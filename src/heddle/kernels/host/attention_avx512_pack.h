// Copies of fp32 operands in the forms that the attention products read: zero-padded rows, and panels of 32 rows
// transposed. Padding is always written, never assumed.
#pragma once

#include <cstring>

#include "heddle/kernels/host/attention_exp.h"
#include "heddle/kernels/host/attention_problem.h"

namespace heddle::kernels::host::attention {

/// The rows of one head of one sequence.
struct RowsOf {
  const float* data;
  int64_t stride, width;
  const float* row(int64_t at) const { return data + at * stride; }
};

inline RowsOf query_rows(const Task& task, const void* tensor, int64_t head, int64_t width) {
  const int64_t stride = task.problem.heads * width;
  return {static_cast<const float*>(tensor) + task.problem.first_query(task.unit) * stride + head * width, stride,
          width};
}

inline RowsOf key_rows(const Task& task, const void* tensor, int64_t width) {
  const Problem& p = task.problem;
  const int64_t stride = p.kv_heads * width;
  return {static_cast<const float*>(tensor) + p.first_key(task.unit) * stride + p.kv_head(task.unit) * width,
          stride, width};
}

/// The lowest `count` bits, all of them from 32 on.
constexpr uint32_t bits_below(int64_t count) {
  return count >= 32 ? 0xffffffffu : count <= 0 ? 0u : (1u << count) - 1u;
}
constexpr __mmask16 lanes_below(int64_t count) { return static_cast<__mmask16>(bits_below(count)); }

/// to[wanted][to_stride] from `rows` rows of `from` beginning at `first`; the rest is zero.
inline void copy_rows(RowsOf from, int64_t first, int64_t rows, int64_t wanted, float* to, int64_t to_stride) {
  for (int64_t r = 0; r < wanted; ++r) {
    const int64_t filled = r < rows ? from.width : 0;
    if (filled) std::memcpy(to + r * to_stride, from.row(first + r), static_cast<size_t>(filled) * sizeof(float));
    std::memset(to + r * to_stride + filled, 0, static_cast<size_t>(to_stride - filled) * sizeof(float));
  }
}

/// to[rows][width padded to 16], the rows of the given steps.
inline void pack_padded(RowsOf from, int64_t length, int64_t first_step, int64_t end_step, float* to) {
  const int64_t first = first_step * kStep, end = end_step * kStep, stride = round_up(from.width, 16);
  copy_rows(from, first, std::min(end, length) - first, end - first, to + first * stride, stride);
}

/// to[step][width][32], the transposed rows of the given steps.
inline void pack_transposed(RowsOf from, int64_t length, int64_t first_step, int64_t end_step, float* to) {
  for (int64_t step = first_step; step < end_step; ++step) {
    float* const panel = to + step * from.width * kStep;
    for (int64_t r = 0; r < kStep; ++r) {
      const int64_t at = step * kStep + r;
      if (at < length) {
        const float* const row = from.row(at);
        for (int64_t c = 0; c < from.width; ++c) panel[c * kStep + r] = row[c];
      } else {
        for (int64_t c = 0; c < from.width; ++c) panel[c * kStep + r] = 0.0f;
      }
    }
  }
}

}  // namespace heddle::kernels::host::attention
