// Sums of a token's rows in the tree of device/merge_tree.h, a block a token: one thread lists the leaves, then
// every thread adds its columns of them. Up to kFewLeaves leaves are summed in registers, more of them through the
// thread's own memory; which it is, the host knows before it launches.
#pragma once

#include "heddle/kernels/cuda/experts/row_kernels.h"
#include "heddle/kernels/cuda/language.h"

namespace heddle::kernels::cuda {

/// Leaves of a token's sum, in shared memory.
template <int most>
struct Leaves {
  const void* row[most];
  float gate[most];
  int32_t key[most];
  uint8_t is_sum[most];  // of f32; else a row of X, whose gate applies
  /// For few leaves: the sums that merge, in order, as pair_of(into, from), a sum being named by its first leaf.
  /// For many: how often, once leaf j is there, the newest sum joins the one before it.
  uint8_t merges[most];
  int8_t level[most];   // between pending sums
  uint8_t first[most];  // leaf of a pending sum
  int count;
};

/// The number of a pair 0 ≤ into < from.
HEDDLE_DEVICE constexpr int pair_of(int into, int from) { return from * (from - 1) / 2 + into; }

/// One thread's list, by key.
template <int most>
class LeafList {
 public:
  HEDDLE_DEVICE explicit LeafList(Leaves<most>& leaves) : leaves_(leaves) {}
  HEDDLE_DEVICE bool has(int32_t key) const {
    for (int j = 0; j < count_; ++j) {
      if (leaves_.key[j] == key) return true;
    }
    return false;
  }
  HEDDLE_DEVICE void add(int32_t key, const void* row, float gate, bool is_sum) {
    int at = count_++;  // an insertion
    for (; at > 0 && leaves_.key[at - 1] > key; --at) {
      leaves_.key[at] = leaves_.key[at - 1];
      leaves_.row[at] = leaves_.row[at - 1];
      leaves_.gate[at] = leaves_.gate[at - 1];
      leaves_.is_sum[at] = leaves_.is_sum[at - 1];
    }
    leaves_.key[at] = key;
    leaves_.row[at] = row;
    leaves_.gate[at] = gate;
    leaves_.is_sum[at] = is_sum ? 1 : 0;
  }
  HEDDLE_DEVICE void finish() {
    int pending = 0, merged = 0;  // sums, of which level[i] lies between i and i + 1
    for (int j = 0; j < count_; ++j) {
      if (j > 0) leaves_.level[pending - 1] = level(j);
      leaves_.first[pending++] = static_cast<uint8_t>(j);
      const int next = j + 1 < count_ ? level(j + 1) : 127;
      uint8_t joined = 0;
      for (; pending > 1 && leaves_.level[pending - 2] < next; --pending) {
        if (most <= kFewLeaves) {
          leaves_.merges[merged++] =
              static_cast<uint8_t>(pair_of(leaves_.first[pending - 2], leaves_.first[pending - 1]));
        }
        ++joined;
      }
      if (most > kFewLeaves) leaves_.merges[j] = joined;
    }
    leaves_.count = count_;
  }

 private:
  /// The level of the highest bit in which the keys of leaves j - 1 and j differ.
  HEDDLE_DEVICE int8_t level(int j) const {
    return static_cast<int8_t>(32 - __clz(leaves_.key[j] ^ leaves_.key[j - 1]));
  }
  Leaves<most>& leaves_;
  int count_ = 0;
};

/// v = columns at … at + 8 of leaf j, with its gate.
template <class X, int most>
HEDDLE_DEVICE void load_leaf(const Leaves<most>& leaves, int j, bool weighed, int64_t at, int64_t left, bool wide,
                             float (&v)[kPack]) {
  if (leaves.is_sum[j] != 0) {
    load_pack(static_cast<const float*>(leaves.row[j]) + at, left, wide, v);
    return;
  }
  load_pack(static_cast<const X*>(leaves.row[j]) + at, left, wide, v);
  if (!weighed) return;
  HEDDLE_UNROLL
  for (int c = 0; c < kPack; ++c) v[c] = leaves.gate[j] * v[c];
}

HEDDLE_DEVICE void join(float (&into)[kPack], const float (&from)[kPack]) {
  HEDDLE_UNROLL
  for (int c = 0; c < kPack; ++c) into[c] += from[c];
}

/// All leaves are loaded before any is added. A block's threads take the same branches, each of which names its
/// registers.
template <class X>
HEDDLE_DEVICE void add_leaves(const Leaves<kFewLeaves>& leaves, bool weighed, int64_t at, int64_t left, bool wide,
                              float (&sum)[kPack]) {
  float v[kFewLeaves][kPack] = {};
  HEDDLE_UNROLL
  for (int j = 0; j < kFewLeaves; ++j) {
    if (j < leaves.count) load_leaf<X>(leaves, j, weighed, at, left, wide, v[j]);
  }
  for (int m = 0; m + 1 < leaves.count; ++m) {
    switch (leaves.merges[m]) {
#define JOIN(into, from)    \
  case pair_of(into, from): \
    join(v[into], v[from]); \
    break;
#define JOIN_TO_2(from) JOIN(0, from) JOIN(1, from)
#define JOIN_TO_4(from) JOIN_TO_2(from) JOIN(2, from) JOIN(3, from)
      JOIN(0, 1)
      JOIN_TO_2(2)
      JOIN_TO_2(3)
      JOIN(2, 3)
      JOIN_TO_4(4)
      JOIN_TO_4(5) JOIN(4, 5) JOIN_TO_4(6) JOIN(4, 6) JOIN(5, 6) JOIN_TO_4(7) JOIN(4, 7) JOIN(5, 7) JOIN(6, 7)
#undef JOIN_TO_4
#undef JOIN_TO_2
#undef JOIN
          default : break;
    }
  }
  HEDDLE_UNROLL
  for (int c = 0; c < kPack; ++c) sum[c] = v[0][c];
}

/// sum = the tree's sum of columns at … at + 8; zeros without leaves.
template <class X>
HEDDLE_DEVICE void add_leaves(const Leaves<kMostLeaves>& leaves, bool weighed, int64_t at, int64_t left, bool wide,
                              float (&sum)[kPack]) {
  float pending[33][kPack];  // a sum a bit of the key, and the newest
  int top = 0;
  for (int j = 0; j < leaves.count; ++j) {
    float v[kPack];
    load_leaf<X>(leaves, j, weighed, at, left, wide, v);
    for (int m = leaves.merges[j]; m > 0; --m) {
      --top;
      HEDDLE_UNROLL
      for (int c = 0; c < kPack; ++c) v[c] = pending[top][c] + v[c];
    }
    HEDDLE_UNROLL
    for (int c = 0; c < kPack; ++c) pending[top][c] = v[c];
    ++top;
  }
  HEDDLE_UNROLL
  for (int c = 0; c < kPack; ++c) sum[c] = leaves.count > 0 ? pending[0][c] : 0.0f;
}

}  // namespace heddle::kernels::cuda
