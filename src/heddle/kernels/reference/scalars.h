// Functions of one number, and the sum that gates are divided by.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace heddle::kernels::reference {

/// The addend of a sum of scores before gates are divided by it.
constexpr double kLeastSum = 1e-20;

template <class A>
A sigmoid(A x) {
  return A(1) / (A(1) + std::exp(-x));
}
template <class A>
A silu(A x) {
  return x * sigmoid(x);
}
/// d silu(x) ÷ dx = σ(x)·(1 + x·(1 − σ(x))).
template <class A>
A silu_slope(A x) {
  const A s = sigmoid(x);
  return s * (A(1) + x * (A(1) - s));
}
/// log Σ exp(x_i), relative to the greatest x.
template <class A>
A log_sum_exp(const A* x, int64_t count) {
  const A most = *std::max_element(x, x + count);
  A sum = 0;
  for (int64_t i = 0; i < count; ++i) sum += std::exp(x[i] - most);
  return most + std::log(sum);
}

}  // namespace heddle::kernels::reference
