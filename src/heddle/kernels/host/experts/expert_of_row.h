// The bias of each row's expert, of rows that are sorted by expert; and the blocks of columns that its gradient is
// summed by.
#pragma once

#include "heddle/device/kernel_call.h"

namespace heddle::kernels::host {

constexpr int64_t kColumnBlock = 512;
inline int64_t column_blocks(int64_t columns) { return (columns + kColumnBlock - 1) / kColumnBlock; }

/// Asked for rows in increasing order.
class ExpertOfRow {
 public:
  /// Operand `bias` of the call is f32[E, N], the one behind it i32[E + C + 1]. Behind that is f32[C, N] of
  /// replicas, where there are any. Or all are absent.
  ExpertOfRow(const device::KernelCall& call, size_t bias) {
    if (bias >= call.in.size() || !call.in[bias]) return;
    bias_EN_ = call.in[bias].as<const float>();
    N_ = call.in[bias].columns();
    own_ = call.in[bias].rows();
    if (bias + 2 < call.in.size() && call.in[bias + 2]) copies_CN_ = call.in[bias + 2].as<const float>();
    offsets_ = call.in[bias + 1].as<const int32_t>();
  }
  /// Null where there are none.
  const float* bias(int64_t row) {
    if (bias_EN_ == nullptr) return nullptr;
    while (offsets_[expert_ + 1] <= row) ++expert_;
    return expert_ < own_ ? bias_EN_ + expert_ * N_ : copies_CN_ + (expert_ - own_) * N_;
  }

 private:
  const float *bias_EN_ = nullptr, *copies_CN_ = nullptr;
  const int32_t* offsets_ = nullptr;
  int64_t N_ = 0, own_ = 0, expert_ = 0;
};

}  // namespace heddle::kernels::host
