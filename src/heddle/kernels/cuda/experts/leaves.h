// Sums of a token's rows in the tree of device/merge_tree.h, a block a token: one thread lists the leaves, then
// every thread adds its columns of them.
#pragma once

#include "heddle/kernels/cuda/experts/row_kernels.h"
#include "heddle/kernels/cuda/language.h"

namespace heddle::kernels::cuda {

constexpr int kMostLeaves = kMostSummed;

/// In shared memory.
struct Leaves {
  const void* row[kMostLeaves];
  float gate[kMostLeaves];
  uint8_t is_sum[kMostLeaves];  // of f32; else a row of X, whose gate applies
  uint8_t merges[kMostLeaves];
  int count;
};

/// One thread's list, by key.
class LeafList {
 public:
  HEDDLE_DEVICE explicit LeafList(Leaves& leaves) : leaves_(leaves) {}
  HEDDLE_DEVICE bool has(int32_t key) const {
    for (int j = 0; j < count_; ++j) {
      if (keys_[j] == key) return true;
    }
    return false;
  }
  HEDDLE_DEVICE void add(int32_t key, const void* row, float gate, bool is_sum) {
    int at = count_++;  // an insertion
    for (; at > 0 && keys_[at - 1] > key; --at) {
      keys_[at] = keys_[at - 1];
      leaves_.row[at] = leaves_.row[at - 1];
      leaves_.gate[at] = leaves_.gate[at - 1];
      leaves_.is_sum[at] = leaves_.is_sum[at - 1];
    }
    keys_[at] = key;
    leaves_.row[at] = row;
    leaves_.gate[at] = gate;
    leaves_.is_sum[at] = is_sum ? 1 : 0;
  }
  /// How often, once leaf j is there, the newest sum joins the one before it.
  HEDDLE_DEVICE void finish() {
    int8_t levels[kMostLeaves];
    int pending = 0;
    for (int j = 0; j < count_; ++j) {
      if (j > 0) levels[pending++] = static_cast<int8_t>(32 - __clz(keys_[j] ^ keys_[j - 1]));
      const int next = j + 1 < count_ ? 32 - __clz(keys_[j + 1] ^ keys_[j]) : 127;
      uint8_t joined = 0;
      for (; pending > 0 && levels[pending - 1] < next; --pending) ++joined;
      leaves_.merges[j] = joined;
    }
    leaves_.count = count_;
  }

 private:
  Leaves& leaves_;
  int32_t keys_[kMostLeaves];
  int count_ = 0;
};

/// sum = the tree's sum of columns at … at + 8; zeros without leaves.
template <class X>
HEDDLE_DEVICE void add_leaves(const Leaves& leaves, bool weighed, int64_t at, int64_t left, bool wide,
                              float (&sum)[kPack]) {
  float pending[33][kPack];  // a sum a bit of the key, and the newest
  int top = 0;
  for (int j = 0; j < leaves.count; ++j) {
    float v[kPack];
    if (leaves.is_sum[j] != 0) {
      load_pack(static_cast<const float*>(leaves.row[j]) + at, left, wide, v);
    } else {
      load_pack(static_cast<const X*>(leaves.row[j]) + at, left, wide, v);
      if (weighed) {
        HEDDLE_UNROLL
        for (int c = 0; c < kPack; ++c) v[c] = leaves.gate[j] * v[c];
      }
    }
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
