// What collectives do with rows between their exchanges, on the memory of a device: sums in rank order, columns cut
// and joined, rows sorted by expert. The kernels belong to the device's backend, the exchanges to a communicator;
// the executor brings both together. All run in the order of `stream`.
//
// T tokens, k experts a token, E experts, R = T·k rows, H columns.
#pragma once

#include <cstddef>
#include <cstdint>

#include "heddle/device/kernel_call.h"

namespace heddle::device {

struct RowWork {
  /// out_i = Σ_r in order parts[r·stride + i], in A, rounded once.
  void (*sum_parts)(Dtype dtype, const std::byte* parts, int64_t stride, int64_t ranks, int64_t count, void* out,
                    void* stream);
  /// to += from, in A.
  void (*add)(Dtype dtype, void* to, const void* from, int64_t count, void* stream);
  /// Between rows of all columns and, for each rank in turn, all rows of its columns; `width` bytes a rank.
  void (*cut_columns)(std::byte* whole, std::byte* parts, int64_t rows, int64_t width, int64_t ranks, bool join,
                      void* stream);
  void (*copy)(void* to, const void* from, int64_t bytes, void* stream);
  void (*zero)(void* at, int64_t bytes, void* stream);
  /// From memory of the host, which may change as soon as this returns.
  void (*upload)(void* to, const void* from, int64_t bytes, void* stream);

  /// counts[e] = slots that chose expert e.
  void (*count_rows)(const int32_t* experts_Tk, int64_t T, int64_t k, int64_t E, int32_t* counts_E, void* stream);
  /// Rows of (token, slot) sorted by (expert, token): row_of[T,k], slot_of[R] (t·k + j), offsets[E+1].
  void (*sort_rows)(const int32_t* experts_Tk, int64_t T, int64_t k, int64_t E, int32_t* row_of_Tk,
                    int32_t* slot_of_R, int32_t* offsets, void* stream);
  /// to_r = from[slot_of_r ÷ k], rows of numbers.
  void (*gather)(const TensorView& from, const int32_t* slot_of_R, int64_t k, int64_t R, void* to, void* stream);
  /// to_t = Σ_j g[t,j]·rows[row_of[t,j]] (without g: of the rows) in the tree of merge_tree.h over key_of[expert],
  /// then + residual, which may be absent.
  void (*tree_sum)(const void* rows, const float* g_Tk, const int32_t* row_of_Tk, const TensorView& experts_Tk,
                   const int32_t* key_of_E, const TensorView& residual_TH, const TensorView& to_TH, void* stream);
  /// What counts_to_host makes beside copies: offsets of the P experts here over what all G ranks send.
  void (*local_offsets)(const int32_t* n_2GP, int64_t G, int64_t P, int32_t* offsets, void* stream);
};

}  // namespace heddle::device
