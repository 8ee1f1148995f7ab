// Combine: sums of a token's rows from its experts, at the ranks of the experts, at the rank that passed it on, and
// at home. The arguments: device/exchange_work.h. A block a token; rows are of X, sums f32. A token has `most`
// leaves at most: kFewLeaves or kMostLeaves of row_kernels.h.
#pragma once

#include "heddle/device/exchange_work.h"
#include "heddle/kernels/cuda/arguments.h"

namespace heddle::kernels::cuda {

constexpr int kSumThreads = 128;

template <class X, int most>
HEDDLE_KERNEL void sum_tokens(device::SumTokens args);
template <class X, int most>
HEDDLE_KERNEL void sum_node(device::SumNode args);
template <class X, int most>
HEDDLE_KERNEL void combine_sums(device::CombineSums args);
HEDDLE_KERNEL void slot_numbers(device::SlotNumbers args);

}  // namespace heddle::kernels::cuda
