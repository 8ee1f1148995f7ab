// The factor of the softmax in the gradient of a cross-entropy with z-loss (docs/ops.md, cross_entropy): 1 +
// 2ζ·lse. Kept from zero, where the gradient of the label would no longer be a share of it; lse is there only where
// all logits are far below zero.
#pragma once

namespace heddle::kernels {

template <class A>
A z_slope(A z_weight, A lse) {
  const A least = A(1) / A(1 << 20), slope = A(1) + A(2) * z_weight * lse;
  return slope < least && slope > -least ? least : slope;
}

}  // namespace heddle::kernels
