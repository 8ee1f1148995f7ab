// Products of operands in eight bits: operands are rounded as ops/fp8_blocks.h defines, then go to the loops
// of the product that the op stands in for. T rows, K in, N out; R rows sorted by expert, E experts.
#include <algorithm>
#include <array>

#include "heddle/kernels/reference/operands.h"
#include "heddle/ops/fp8_blocks.h"

namespace heddle::kernels::reference {
namespace {

using fp8::kBlock;

/// The loops of another op.
device::Kernel loops_of(std::string_view kind) {
  for (const KernelEntry& each : linear_kernels()) {
    if (each.op_kind == kind) return each.run;
  }
  internal_error("no loops for '{}'", kind);
}

/// An operand for those loops: numbers of type A that are rounded already.
template <class A>
struct Operand {
  std::vector<A> numbers;
  TensorView view;

  explicit Operand(const TensorView& like) : numbers(static_cast<size_t>(like.elements())), view(like) {
    view.dtype = dtype_of<A>;
    view.data = numbers.data();
  }
};

/// Calls with the first row and the end of every block of rows, of which none has rows of two groups.
template <class Visit>
void each_row_block(const TensorView& offsets, int64_t rows, Visit visit) {
  const int64_t groups = offsets ? offsets.elements() - 1 : 1;
  const auto* first = offsets.as<const int32_t>();
  for (int64_t g = 0; g < groups; ++g) {
    const int64_t end = offsets ? first[g + 1] : rows;
    for (int64_t row = offsets ? first[g] : 0; row < end; row += kBlock) visit(row, std::min(row + kBlock, end));
  }
}

/// Rounds the numbers in rows [r0, r1) and columns [c0, c1) of a matrix together.
template <class A>
void round_block(A* numbers, int64_t columns, int64_t r0, int64_t r1, int64_t c0, int64_t c1) {
  A most = 0;
  for (int64_t r = r0; r < r1; ++r) {
    for (int64_t c = c0; c < c1; ++c) most = fp8::larger(most, numbers[r * columns + c]);
  }
  const uint8_t scale = fp8::scale_for(most);
  for (int64_t r = r0; r < r1; ++r) {
    for (int64_t c = c0; c < c1; ++c) numbers[r * columns + c] = fp8::in_block(numbers[r * columns + c], scale);
  }
}

/// 128 columns of a row together.
template <class A>
Operand<A> rounded_along_rows(const TensorView& x) {
  Operand<A> to(x);
  const Input<A> from(x);
  std::copy_n(from.at(0), x.elements(), to.numbers.begin());
  for (int64_t r = 0; r < x.dim(0); ++r) {
    for (int64_t c = 0; c < x.dim(1); c += kBlock)
      round_block(to.numbers.data(), x.dim(1), r, r + 1, c, std::min(c + kBlock, x.dim(1)));
  }
  return to;
}

/// 128 rows of a column together.
template <class A>
void round_along_columns(Operand<A>& x, const TensorView& offsets) {
  each_row_block(offsets, x.view.dim(0), [&](int64_t begin, int64_t end) {
    for (int64_t c = 0; c < x.view.dim(1); ++c) round_block(x.numbers.data(), x.view.dim(1), begin, end, c, c + 1);
  });
}

/// Calls with each block of a weight: its matrix, first row and first column.
template <class Visit>
void each_weight_block(const TensorView& w, Visit visit) {
  const int64_t K = w.dim(w.rank - 1), N = w.dim(w.rank - 2), E = w.rank == 3 ? w.dim(0) : 1;
  for (int64_t e = 0; e < E; ++e) {
    for (int64_t n = 0; n < N; n += kBlock) {
      for (int64_t k = 0; k < K; k += kBlock) visit(e, n, k);
    }
  }
}

/// 128 × 128 of each matrix together; absent stays absent.
template <class A>
Operand<A> rounded_weight(const TensorView& w) {
  Operand<A> to(w);
  if (!w) {
    to.view = {};
    return to;
  }
  const Input<A> from(w);
  std::copy_n(from.at(0), w.elements(), to.numbers.begin());
  const int64_t K = w.dim(w.rank - 1), N = w.dim(w.rank - 2);
  each_weight_block(w, [&](int64_t e, int64_t n, int64_t k) {
    round_block(to.numbers.data() + e * N * K, K, n, std::min(n + kBlock, N), k, std::min(k + kBlock, K));
  });
  return to;
}

/// A weight of a call, rounded here or ahead. `w`: where it stands among the operands.
template <class A>
Operand<A> weight_of(const KernelCall& call, size_t w, size_t scales_at) {
  const TensorView bytes = call.in[w], scales = operand(call.in, scales_at);
  if (!scales) return rounded_weight<A>(bytes);
  const bool turned = call.op->attributes.integer_or("turned", 0) != 0;
  Operand<A> to(bytes);
  if (turned) std::swap(to.view.dims[bytes.rank - 2], to.view.dims[bytes.rank - 1]);
  const int64_t K = to.view.dim(bytes.rank - 1), N = to.view.dim(bytes.rank - 2);
  int64_t block = 0;
  each_weight_block(bytes, [&](int64_t e, int64_t r0, int64_t c0) {
    const float scale = fp8::scale_of(scales.as<const uint8_t>()[block++]);
    for (int64_t r = r0; r < std::min(r0 + kBlock, turned ? K : N); ++r) {
      for (int64_t c = c0; c < std::min(c0 + kBlock, turned ? N : K); ++c) {
        const uint8_t byte = bytes.as<const uint8_t>()[e * N * K + r * (turned ? N : K) + c];
        to.numbers[e * N * K + (turned ? c * K + r : r * K + c)] = fp8::number_of(byte) * scale;
      }
    }
  });
  return to;
}

/// The numbers of rows that are rounded.
template <class A>
Operand<A> numbers_of(const TensorView& q, const TensorView& scales) {
  Operand<A> to(q);
  const auto *bytes = q.as<const uint8_t>(), *scale = scales.as<const uint8_t>();
  const int64_t K = q.dim(1), blocks = scales.dim(1);
  for (int64_t i = 0; i < q.elements(); ++i) {
    to.numbers[i] = fp8::number_of(bytes[i]) * fp8::scale_of(scale[i / K * blocks + i % K / kBlock]);
  }
  return to;
}

template <class A>
void round_rows(const KernelCall& call) {
  const Input<A> x_TK(call.in[0]);
  auto *q_TK = call.out[0].as<uint8_t>(), *scales = call.out[1].as<uint8_t>();
  const int64_t T = call.in[0].dim(0), K = call.in[0].dim(1), blocks = fp8::blocks_of(K);
  for (int64_t t = 0; t < T; ++t) {
    for (int64_t b = 0; b < blocks; ++b) {
      const int64_t begin = t * K + b * kBlock, end = t * K + std::min((b + 1) * kBlock, K);
      A most = 0;
      for (int64_t i = begin; i < end; ++i) most = fp8::larger(most, x_TK[i]);
      const uint8_t scale = scales[t * blocks + b] = fp8::scale_for(most);
      for (int64_t i = begin; i < end; ++i) {
        q_TK[i] = fp8::byte_of(static_cast<float>(fp8::rounded(x_TK[i] * static_cast<A>(fp8::inverse_of(scale)))));
      }
    }
  }
}

/// The bytes and scales of a weight, and of its turned form where that is wanted.
template <class A>
void round_weight(const KernelCall& call) {
  const TensorView w = call.in[0];
  const Input<A> from(w);
  const int64_t K = w.dim(w.rank - 1), N = w.dim(w.rank - 2);
  const int64_t down = fp8::blocks_of(N), across = fp8::blocks_of(K);
  const auto bytes = [&](size_t update) { return call.updates[update].as<uint8_t>(); };
  const bool turns = call.updates.size() > 2;
  each_weight_block(w, [&](int64_t e, int64_t n0, int64_t k0) {
    const int64_t end_n = std::min(n0 + kBlock, N), end_k = std::min(k0 + kBlock, K);
    A most = 0;
    for (int64_t n = n0; n < end_n; ++n) {
      for (int64_t k = k0; k < end_k; ++k) most = fp8::larger(most, from[(e * N + n) * K + k]);
    }
    const uint8_t scale = fp8::scale_for(most);
    const int64_t i = n0 / kBlock, j = k0 / kBlock;
    bytes(1)[(e * down + i) * across + j] = scale;
    if (turns) bytes(3)[(e * across + j) * down + i] = scale;
    for (int64_t n = n0; n < end_n; ++n) {
      for (int64_t k = k0; k < end_k; ++k) {
        const A number = fp8::rounded(from[(e * N + n) * K + k] * static_cast<A>(fp8::inverse_of(scale)));
        const uint8_t byte = fp8::byte_of(static_cast<float>(number));
        bytes(0)[(e * N + n) * K + k] = byte;
        if (turns) bytes(2)[(e * K + k) * N + n] = byte;
      }
    }
  });
}

/// y = x wᵀ + bias, or over the rows of each expert: q, scales, w and then what the other op has behind its w.
template <class A, bool grouped>
void forward(const KernelCall& call) {
  const Operand<A> x = numbers_of<A>(call.in[0], call.in[1]), w = weight_of<A>(call, 2, grouped ? 5 : 4);
  const Operand<A> copies = rounded_weight<A>(grouped ? operand(call.in, 4) : TensorView{});
  const std::array in{x.view, w.view, operand(call.in, 3), copies.view};
  KernelCall product = call;
  product.in = std::span(in).first(grouped ? 4 : 3);
  static const device::Kernel run = loops_of(grouped ? "grouped_linear" : "linear");
  run(product);
}

/// dx = dy w, likewise.
template <class A, bool grouped>
void dgrad(const KernelCall& call) {
  const Operand<A> dy = rounded_along_rows<A>(call.in[0]), w = weight_of<A>(call, 1, grouped ? 4 : 2);
  const Operand<A> copies = rounded_weight<A>(grouped ? operand(call.in, 3) : TensorView{});
  const std::array in{dy.view, w.view, operand(call.in, 2), copies.view};
  KernelCall product = call;
  product.in = std::span(in).first(grouped ? 4 : 2);
  static const device::Kernel run = loops_of(grouped ? "grouped_linear_dgrad" : "linear_dgrad");
  run(product);
}

/// acc += dyᵀ x, both rounded along the rows that are summed; bias_acc += Σ_t dy, which is not rounded.
template <class A, bool grouped>
void wgrad(const KernelCall& call) {
  const TensorView offsets = grouped ? call.in[3] : TensorView{};
  Operand<A> x = numbers_of<A>(call.in[0], call.in[1]), dy(call.in[2]);
  const Input<A> given(call.in[2]);
  std::copy_n(given.at(0), call.in[2].elements(), dy.numbers.begin());
  round_along_columns(x, offsets);
  round_along_columns(dy, offsets);
  const std::array in{x.view, dy.view, offsets};
  KernelCall product = call;
  product.in = std::span(in).first(grouped ? 3 : 2);
  product.updates = call.updates.first(1);
  static const device::Kernel run = loops_of(grouped ? "grouped_linear_wgrad" : "linear_wgrad");
  run(product);
  if (!operand(call.updates, 1)) return;
  KernelCall sums = call;
  sums.in = call.in.subspan(2, 1);
  sums.updates = call.updates.subspan(1, 1);
  static const device::Kernel add = loops_of("add_bias_wgrad");
  add(sums);
}

}  // namespace

std::vector<KernelEntry> fp8_kernels() {
  return {entry("round_rows", by_type<in0, round_rows<float>, round_rows<double>>),
          entry("round_weight", by_type<in0, round_weight<float>, round_weight<double>>),
          entry("linear_fp8", by_type<out0, forward<float, false>, forward<double, false>>),
          entry("linear_fp8_dgrad", by_type<in0, dgrad<float, false>, dgrad<double, false>>),
          entry("linear_fp8_wgrad", by_type<in2, wgrad<float, false>, wgrad<double, false>>),
          entry("grouped_linear_fp8", by_type<out0, forward<float, true>, forward<double, true>>),
          entry("grouped_linear_fp8_dgrad", by_type<in0, dgrad<float, true>, dgrad<double, true>>),
          entry("grouped_linear_fp8_wgrad", by_type<in2, wgrad<float, true>, wgrad<double, true>>)};
}

}  // namespace heddle::kernels::reference
