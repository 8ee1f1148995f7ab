// Entries of products whose operands are rounded to eight bits. See fp8.cpp.
#pragma once

#include <vector>

#include "heddle/kernels/registry.h"

namespace heddle::kernels::cuda {

std::vector<KernelEntry> fp8_entries();
/// Entries on Hopper's own instructions, to be asked before the others; empty in a build without them.
std::vector<KernelEntry> hopper_fp8_entries();

/// Rows of x[T, K] as bytes, with a scale for each 128 columns: [T, ⌈K ÷ 128⌉].
void fp8_round_rows(const device::TensorView& x, uint8_t* q, uint8_t* scales, void* stream);
/// Matrices [E, N, K], or one, as bytes, with a scale for each 128 × 128; or turned, [E, K, N].
void fp8_weight_bytes(const device::TensorView& w, bool turned, uint8_t* q, uint8_t* scales, void* stream);
/// Forward or input gradient on operands rounded to bf16: what takes every call, and its scratch.
void fp8_widened(const device::KernelCall& call, bool grouped, bool is_dgrad);
int64_t fp8_widened_scratch(const ir::Listing& listing, const ir::Op& op, const ir::RowCounts& rows);
Support fp8_takes_rows(const ir::Listing& listing, const ir::Op& op);

}  // namespace heddle::kernels::cuda
