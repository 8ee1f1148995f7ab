// The text that tests of state on the host have in common: one weight, the sum of its gradient, and the norm.
#pragma once

#include <string>

namespace heddle::test {

inline constexpr double kFast = 1e6;  // bytes a microsecond: the link doesn't bound a slice

inline const std::string kTable =
    "listing 0\n"
    "  takes        hyper     f64[4] step of rates\n"
    "  weight       w         bf16[64, 32]\n"
    "  accumulator  grad.w    f32[64, 32]\n";
/// Sums come from somewhere.
inline const std::string kSums =
    "listing 0, F\n"
    "  no layer\n"
    "    x = receive {columns 32, dtype bf16, rows 4, step -1}  comm.pp.forward.receive\n"
    "    y = receive {columns 64, dtype bf16, rows 4, step -1}  comm.pp.forward.receive\n"
    "listing 0, W\n"
    "  no layer\n"
    "    linear_wgrad x, y -> grad.w\n"
    "listing 0, end\n"
    "  no layer\n";
inline const std::string kNorm =
    "    square = grad_square_sum grad.w\n"
    "    norm, clip = grad_norm square {max_norm 1}\n"
    "    hyper = load {input hyper}  copy_in\n";
inline const std::string kHow = "{beta1 0.9, beta2 0.95, copy 1, decay 0.1, epsilon 1e-08}";

}  // namespace heddle::test
