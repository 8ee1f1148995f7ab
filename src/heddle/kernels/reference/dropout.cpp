// dropout, dropout_add. T rows, H columns.
#include "heddle/kernels/dropout_words.h"
#include "heddle/kernels/reference/operands.h"

namespace heddle::kernels::reference {
namespace {

/// body(element, its factor: 0, or 1 ÷ (1 − rate)). `tokens`: the operand, with the key behind it.
template <class A, class Body>
void for_each_drawn(const KernelCall& call, size_t tokens, const Body& body) {
  const int64_t T = call.in[0].dim(0), H = call.in[0].dim(1);
  const auto* tokens_T = call.in[tokens].as<const int32_t>();
  const DropoutDraw draw(*call.op, call.in[tokens + 1].as<const int32_t>());
  for (int64_t t = 0; t < T; ++t) {
    for (int64_t first = 0; first < H; first += 4) {
      const Philox::Words words = draw.words(first / 4, tokens_T[t]);
      for (int64_t h = first; h < std::min(H, first + 4); ++h) {
        const bool kept = words[h - first] >= draw.least_kept;
        body(t * H + h, h, kept ? static_cast<A>(draw.factor) : A(0));
      }
    }
  }
}

/// y = factor·x. What is put to zero is zero whatever it was.
template <class A>
void dropout(const KernelCall& call) {
  const Input<A> x(call.in[0]);
  const Output<A> y(call.out[0]);
  for_each_drawn<A>(call, 1, [&](int64_t i, int64_t, A factor) { y[i] = factor == 0 ? A(0) : factor * x[i]; });
}

/// y = residual + factor·(x + bias).
template <class A>
void dropout_add(const KernelCall& call) {
  const Input<A> x(call.in[0]), residual(call.in[1]), bias(operand(call.in, 4));
  const Output<A> y(call.out[0]);
  for_each_drawn<A>(call, 2, [&](int64_t i, int64_t h, A factor) {
    y[i] = residual[i] + (factor == 0 ? A(0) : factor * (x[i] + (bias ? bias[h] : A(0))));
  });
}

}  // namespace

std::vector<KernelEntry> dropout_kernels() {
  return {entry("dropout", by_type<in0, dropout<float>, dropout<double>>),
          entry("dropout_add", by_type<in0, dropout_add<float>, dropout_add<double>>)};
}

}  // namespace heddle::kernels::reference
