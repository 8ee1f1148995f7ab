// Cuts a kernel that streams through memory among threads, and keeps one order of sums over rows.
//
// Pieces are ranges of rows. A row's result never depends on its piece. A sum over rows is formed in blocks of
// kRowsPerPartial rows, in increasing row. The blocks' sums are added in block order: the bits are the same for any
// number of threads.
#pragma once

#include <omp.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "heddle/device/kernel_call.h"

namespace heddle::kernels::host {

constexpr int64_t kRowsPerPartial = 64;
inline int64_t partial_count(int64_t rows) { return (rows + kRowsPerPartial - 1) / kRowsPerPartial; }
/// Partial p of sums over rows of H columns, in scratch, each on cache lines of its own.
inline int64_t partial_stride(int64_t H) { return (H + 15) / 16 * 16; }
inline float* partial_sum(std::byte* scratch, int64_t p, int64_t H) {
  return reinterpret_cast<float*>(scratch) + p * partial_stride(H);
}
inline const float* partial_sum(const std::byte* scratch, int64_t p, int64_t H) {
  return reinterpret_cast<const float*>(scratch) + p * partial_stride(H);
}
inline int64_t partial_sums_bytes(int64_t rows, int64_t H) { return partial_count(rows) * partial_stride(H) * 4; }

/// A thread more costs some microseconds: it must have this much to move.
constexpr int64_t kLeastBytesPerThread = 64 << 10;
/// Beyond this the caches hold nothing from one op to the next, and pieces go to whoever is free.
constexpr int64_t kCachedBytesPerThread = 2 << 20;

/// Elements of a tensor seen as one long row come in multiples of this.
constexpr int64_t kElementsPerPiece = 1024;

/// Calls body(begin, end) for pieces that cover 0 .. rows; every begin is a multiple of `multiple`. `body` must not
/// throw.
template <class Body>
void over_rows(int64_t rows, int64_t bytes_per_row, const Body& body, int64_t multiple = 1) {
  if (rows <= 0) return;
  const int64_t bytes = rows * std::max<int64_t>(1, bytes_per_row);
  const int64_t most = (rows + multiple - 1) / multiple;
  const int64_t threads =
      std::min({static_cast<int64_t>(omp_get_max_threads()), bytes / kLeastBytesPerThread, most});
  if (threads <= 1) {
    body(int64_t{0}, rows);
    return;
  }
  const bool free_order = bytes > threads * kCachedBytesPerThread;
  const int64_t pieces = std::min(most, free_order ? 8 * threads : threads);
  const auto start = [&](int64_t piece) { return std::min(rows, most * piece / pieces * multiple); };
  const auto team = static_cast<int>(threads);
  if (free_order) {
#pragma omp parallel for num_threads(team) schedule(dynamic, 1)
    for (int64_t piece = 0; piece < pieces; ++piece) body(start(piece), start(piece + 1));
  } else {
#pragma omp parallel for num_threads(team) schedule(static)
    for (int64_t piece = 0; piece < pieces; ++piece) body(start(piece), start(piece + 1));
  }
}

/// A kernel on rows begin … end of its call.
using RowKernel = void (*)(const device::KernelCall& call, int64_t begin, int64_t end);

inline void over_rows(const device::KernelCall& call, int64_t rows, int64_t bytes_per_row, RowKernel piece,
                      int64_t multiple = 1) {
  over_rows(
      rows, bytes_per_row, [&](int64_t begin, int64_t end) { piece(call, begin, end); }, multiple);
}
/// The elements of the first operand as rows, of which each moves `tensors` of its type.
inline void over_elements(const device::KernelCall& call, int64_t tensors, RowKernel piece) {
  over_rows(call, call.in[0].elements(), tensors * size_of(call.in[0].dtype), piece, kElementsPerPiece);
}

}  // namespace heddle::kernels::host
