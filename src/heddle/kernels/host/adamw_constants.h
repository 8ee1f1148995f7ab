// The numbers of one AdamW step, the same for every element: fp32, computed in fp64.
#pragma once

namespace heddle::kernels::host {

struct AdamwConstants {
  float clip;                          // factor of the gradient
  float beta1, rest1, beta2, rest2;    // rest = 1 − beta
  float epsilon, decay, rate;
  float over1, over2;                  // 1 ÷ (1 − βᵗ)
};

}  // namespace heddle::kernels::host
