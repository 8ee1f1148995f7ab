// Shapes and costs of linear maps y = x wᵀ and of their gradients. There is one map for all rows or one an expert,
// whatever numbers the rows are kept in (ops/linear.cpp, ops/grouped_linear.cpp, ops/fp8.cpp). Operands are named
// by where they stand. T rows, K in, N out; w is [N, K], of E experts [E, N, K]. Offsets are i32[E + C + 1], with C
// copies of other ranks' experts, [C, N, K].
#pragma once

#include "heddle/ops/rule.h"

namespace heddle::ops {

/// 2·rows·N·K, of the operand w or of the sum of its gradient.
Cost product_cost(const Listing& listing, const Op& op, const RowCounts& rows);

/// x, w, bias? -> y of this type.
std::vector<Value> linear_shape(const Rule& rule, size_t w, Dtype dtype);
/// dy, w -> dx, of the type that the attribute dtype names. With the attribute turned, w is [K, N].
std::vector<Value> linear_dgrad_shape(const Rule& rule, const Op& op);
/// x, …, dy -> acc.
std::vector<Value> linear_wgrad_shape(const Rule& rule, size_t dy);

/// offsets, with their type.
void check_offsets(const Rule& rule, size_t offsets, int64_t groups);
/// x, …, w, offsets, copies? -> y of this type.
std::vector<Value> grouped_shape(const Rule& rule, size_t w, Dtype dtype);
/// dy, w, offsets, copies? -> dx. With the attribute turned, w is [E, K, N].
std::vector<Value> grouped_dgrad_shape(const Rule& rule, const Op& op);
/// x, …, dy, offsets -> the gradient of copies, where the attribute says how many; and acc.
std::vector<Value> grouped_wgrad_shape(const Rule& rule, const Op& op, size_t dy);

}  // namespace heddle::ops
