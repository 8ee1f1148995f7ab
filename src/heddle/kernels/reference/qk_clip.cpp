// max_logits and scale_heads (ops/qk_clip.cpp). T rows of h query heads, hk key heads, d elements of each.
//   most_h = the largest over the rows t of: lse where lse ≤ above, else the largest of scale·q_t·k_j over the keys
//   j that row t sees factor_h = above ÷ most_h where most_h exceeds above, else 1; most_h is the largest of all
//   ranks' rows
#include "heddle/kernels/qk_clip.h"

#include <algorithm>
#include <vector>

#include "heddle/base/numbers/split_float.h"
#include "heddle/kernels/reference/operands.h"
#include "heddle/kernels/seen_keys.h"

namespace heddle::kernels::reference {
namespace {

constexpr size_t kKeys = 4;  // the first operand of keys

template <class A>
void max_logits(const KernelCall& call) {
  const ir::Attributes& a = call.op->attributes;
  const int64_t h = a.integer("heads"), hk = a.integer("kv_heads"), d = a.integer("head_dim");
  const double above = a.number("above");
  const auto scale = static_cast<A>(a.number("scale"));
  SeenKeys mask(*call.op, call.place, named_operand(call, "starts").as<const int32_t>());
  const TensorView chosen = named_operand(call, "chosen");
  const int64_t T = call.in[0].dim(0), Sq = mask.queries(), all = call.updates[0].elements() - 1;
  double* most = accumulator<double>(call.updates[0]);
  if (call.overwrite) std::fill_n(most, all, 0.0);
  most[all] = mark_of(call.place);
  most += first_head(*call.op, call.place);
  const Input<A> lse(call.in[1]);
  std::vector<int64_t> exceeding;  // rows and heads
  for (int64_t i = 0; i < T * h; ++i) {
    const double bound = lse[i];
    if (bound <= above) {
      most[i % h] = std::max(most[i % h], bound);
    } else {
      exceeding.push_back(i);
    }
  }
  if (exceeding.empty()) return;
  const Input<A> q(call.in[0]);
  for (size_t part = kKeys; part < call.in.size(); ++part) {
    const Input<A> k(call.in[part]);
    const int turn = static_cast<int>(part - kKeys);
    if (a.integer_or("ring", 0) != 0) mask.owner = mask.owner_in(turn);
    const int64_t S = mask.keys();
    for (const int64_t i : exceeding) {
      const int64_t t = i / h, head = i % h, b = t / Sq;
      const A* q_d = q.at(i * d);
      const auto take = [&](int64_t key) {
        const A* k_d = k.at(((b * S + key) * hk + head / (h / hk)) * d);
        A sum = 0;
        for (int64_t c = 0; c < d; ++c) sum += q_d[c] * k_d[c];
        most[head] = std::max(most[head], static_cast<double>(sum * scale));
      };
      if (chosen) {
        const int64_t columns = chosen.dim(1);
        const int32_t* keys = chosen.as<const int32_t>() + t * columns;
        for (int64_t j = 0; j < columns && keys[j] >= 0; ++j) take(keys[j]);
      } else {
        for (int64_t j = mask.first(b, t % Sq); j < mask.seen(t % Sq); ++j) take(j);
      }
    }
  }
}

/// Calls scale(first, last, factor) for the elements of this rank's run of `count` that a head scales.
template <class Scale>
void each_scaled(const KernelCall& call, int64_t count, const Scale& scale) {
  if (call.in[0].as<const double>()[0] == 0) return;  // the step is left out
  const ScaledRows s(*call.op);
  const auto* most = call.in[1].as<const double>();
  const int64_t ranks = call.in[1].dim(0), width = s.heads + 1;
  const double mark = mark_of(call.place);
  int64_t run = -1;
  std::vector<double> factors(static_cast<size_t>(s.heads), 1);
  for (int64_t r = 0; r < ranks; ++r) {
    if (most[r * width + s.heads] == mark) run = r;
    for (int64_t j = 0; j < s.heads; ++j) {
      if (const double m = most[r * width + j]; m > s.above) factors[j] = std::min(factors[j], s.above / m);
    }
  }
  HEDDLE_CHECK(run >= 0, "'{}' finds no row of its rank", call.op->kind());
  const int64_t begin = run * count, end = std::min(begin + count, s.heads * s.rows * s.columns);
  for (int64_t row = begin / s.columns; row * s.columns < end; ++row) {
    const double factor = power_of(factors[row / s.rows], row % s.rows < s.first ? s.first_power : s.rest_power);
    if (factor == 1) continue;
    scale(std::max(begin, row * s.columns) - begin, std::min(end, (row + 1) * s.columns) - begin, factor);
  }
}

template <class A>
void scale_heads(const KernelCall& call) {
  A* master = accumulator<A>(call.updates[0]);
  each_scaled(call, call.updates[0].elements(), [&](int64_t first, int64_t last, double factor) {
    for (int64_t i = first; i < last; ++i) master[i] *= static_cast<A>(factor);
  });
}

template <class V>
void scale_split(const KernelCall& call, V* v) {
  auto* low = call.updates[0].as<uint16_t>();
  bf16* w = call.updates[2].as<bf16>();
  each_scaled(call, call.updates[0].elements(), [&](int64_t first, int64_t last, double factor) {
    for (int64_t i = first; i < last; ++i) {
      const auto moment = static_cast<float>(v[i]);
      const SplitFloat parts = split(joined({w[i], low[i], std::signbit(moment)}) * static_cast<float>(factor));
      w[i] = parts.nearest;
      low[i] = parts.low;
      v[i] = V(parts.up_at_half ? -std::abs(moment) : std::abs(moment));
    }
  });
}

void scale_heads_split(const KernelCall& call) {
  const TensorView& v = call.updates[1];
  v.dtype == Dtype::bf16 ? scale_split(call, v.as<bf16>()) : scale_split(call, v.as<float>());
}

}  // namespace

std::vector<KernelEntry> qk_clip_kernels() {
  return {entry("max_logits", by_type<in0, max_logits<float>, max_logits<double>>),
          entry("scale_heads", by_type<updates0, scale_heads<float>, scale_heads<double>>),
          entry("scale_heads_split", scale_heads_split)};
}

}  // namespace heddle::kernels::reference
