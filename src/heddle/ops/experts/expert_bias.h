// The common part of ops that add the bias of a row's expert. Operands are u, bias f32[E, N], offsets i32[E + C +
// 1] and, where a rank has copies of other ranks' experts, their biases f32[C, N].
#pragma once

#include <vector>

#include "heddle/ops/rule.h"

namespace heddle::ops {

/// The number of copies that stand behind a bias and its offsets; operand `bias` is the former.
int64_t copies_of_bias(const Rule& rule, size_t bias);

/// W of operand 1, from the gradient of what it was added to, and into d_in[3] that of the copies.
void bias_gradient(GradientWriter& writer, const Op& op, ValueId dy, std::vector<ValueId>& d_in);

}  // namespace heddle::ops
