// Attention on the CPU, forward and backward. For bf16 it takes AMX tiles ("amx"), dot products of pairs
// ("avx512_bf16") or fp32 products of widened operands ("avx512_widened"). For fp32 it takes AVX-512 ("avx512").
// Where there is none of these, it takes Highway ("highway" for fp32, "highway_widened" for bf16).
//
//   o = softmax(scale·q kᵀ) v,  lse = ln Σ exp(scale·q kᵀ)       per sequence and head, causal or not
//
// The scores are never held whole. A block of queries meets the keys block by block with a running maximum and sum.
// The backward recomputes the probabilities from lse (FlashAttention-2, Dao 2023, arXiv 2307.08691). Every sum has
// one order, whatever the number of threads, so that results are bitwise the same with any team.
#pragma once

#include <vector>

#include "heddle/kernels/registry.h"

namespace heddle::kernels::host {

/// `attention` and `attention_dgrad`, and their parts that a ring of ranks joins. With bf16 products
/// the probabilities and their gradients are rounded to bf16 before the second products; sums are fp32. They run on
/// at most as many threads as the process may use processors.
const std::vector<KernelEntry>& attention_kernels();

}  // namespace heddle::kernels::host
