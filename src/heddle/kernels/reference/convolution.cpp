// causal_conv, cached_conv, log_decay, gated_norm and their gradients: the ops around a recurrence, as
// ops/convolution.cpp has them.
#include <algorithm>
#include <cmath>

#include "heddle/kernels/recurrence.h"
#include "heddle/kernels/reference/operands.h"
#include "heddle/kernels/reference/scalars.h"

namespace heddle::kernels::reference {
namespace {

/// The operands of a convolution, with x at `first`.
template <class A>
struct Convolved {
  Convolved(const KernelCall& call, size_t first)
      : x(call.in[first]),
        weight(call.in[first + 1]),
        bias(operand(call.in, first + 2)),
        before(named_operand(call, "before")),
        T(call.in[first].dim(0)),
        C(call.in[first].dim(1)),
        K(call.in[first + 1].dim(1)),
        D(call.op->attributes.integer_or("dilation", 1)),
        S(call.op->attributes.integer("sequence")),
        at(first_of_part(*call.op, call.place, C)),
        bent(call.op->attributes.integer_or("silu", 0) != 0),
        starts(named_operand(call, "starts").as<const int32_t>()) {}
  /// Rows of the document before row t that the kernel sees, D apart.
  int64_t back(int64_t t) const {
    if (starts == nullptr && before) return K - 1;
    return std::min(K - 1, (t % S - (starts == nullptr ? 0 : starts[t])) / D);
  }
  /// The place of row t − i·D among the rows before its sequence; below zero where it is one of x.
  int64_t among_before(int64_t t, int64_t i) const {
    return i * D > t % S ? (t / S + 1) * (K - 1) * D + t % S - i * D : -1;
  }
  A row(int64_t t, int64_t i, int64_t c) const {
    const int64_t other = among_before(t, i);
    return other < 0 ? x[(t - i * D) * C + c] : before[other * C + c];
  }
  /// Σ_i weight[K−1−i]·x_{t−i·D} + bias of channel c.
  A sum(int64_t t, int64_t c) const {
    A sum = bias ? bias[at + c] : A(0);
    for (int64_t i = 0; i <= back(t); ++i) sum += weight[(at + c) * K + K - 1 - i] * row(t, i, c);
    return sum;
  }
  A gradient(const Input<A>& dy, int64_t t, int64_t c) const {
    return bent ? dy[t * C + c] * silu_slope(sum(t, c)) : dy[t * C + c];
  }
  const Input<A> x, weight, bias, before;
  int64_t T, C, K, D, S, at;
  bool bent;
  const int32_t* starts;
};

template <class A>
void causal_conv(const KernelCall& call) {
  const Convolved<A> of(call, 0);
  const Output<A> y(call.out[0]);
  for (int64_t t = 0; t < of.T; ++t) {
    for (int64_t c = 0; c < of.C; ++c) {
      const A z = of.sum(t, c);
      y[t * of.C + c] = of.bent ? silu(z) : z;
    }
  }
}

/// dz = dy·slope; dx_t = Σ_i weight[K−1−i]·dz_{t+i·D} over the document; dweight[K−1−i] = Σ_t dz_t·x_{t−i·D},
/// dbias = Σ dz.
template <class A>
void causal_conv_dgrad(const KernelCall& call) {
  const Input<A> dy(call.in[0]), behind(named_operand(call, "behind"));
  const Convolved<A> of(call, 1);
  const int64_t C = of.C, K = of.K, D = of.D, last = behind ? std::min((K - 1) * D, of.S) : 0;
  const Output<A> dx(call.out[0]), dweight(call.out[1]);
  dx.fill(A(0));
  dweight.fill(A(0));
  std::vector<A> sums(static_cast<size_t>(C), A(0));
  for (int64_t t = 0; t < of.T; ++t) {
    for (int64_t c = 0; c < C; ++c) {
      const A dz = of.gradient(dy, t, c);
      for (int64_t i = 0; i <= of.back(t); ++i) {
        if (of.among_before(t, i) < 0) dx[(t - i * D) * C + c] += of.weight[(of.at + c) * K + K - 1 - i] * dz;
        dweight[(of.at + c) * K + K - 1 - i] += of.row(t, i, c) * dz;
      }
      sums[c] += dz;
    }
  }
  for (int64_t t = 0; t < of.T; ++t) {
    const int64_t from_end = of.S - t % of.S;
    if (from_end > last) continue;
    for (int64_t c = 0; c < C; ++c) dx[t * C + c] += behind[((t / of.S + 1) * last - from_end) * C + c];
  }
  if (!of.bias) return;
  const Output<A> dbias(call.out[2]);
  dbias.fill(A(0));
  std::copy(sums.begin(), sums.end(), dbias.at(of.at));
}

template <class A>
void causal_conv_before_dgrad(const KernelCall& call) {
  const Input<A> dy(call.in[0]);
  const Convolved<A> of(call, 1);
  const Output<A> to(call.out[0]);
  to.fill(A(0));
  for (int64_t t = 0; t < of.T; ++t) {
    for (int64_t i = t % of.S / of.D + 1; i <= of.back(t); ++i) {
      for (int64_t c = 0; c < of.C; ++c)
        to[of.among_before(t, i) * of.C + c] +=
            of.weight[(of.at + c) * of.K + of.K - 1 - i] * of.gradient(dy, t, c);
    }
  }
}

void piece_ends(const KernelCall& call) {
  const int64_t S = call.op->attributes.integer("sequence"), count = call.op->attributes.integer("count");
  const int64_t row = call.in[0].dim(1) * size_of(call.in[0].dtype);
  for (int64_t n = 0; n < call.in[0].dim(0) / S; ++n)
    std::copy_n(call.in[0].as<const std::byte>() + ((n + 1) * S - count) * row, count * row,
                call.out[0].as<std::byte>() + n * count * row);
}

/// All last rows follow one another: row j of those before piece p is row p·rows − count + j of them. In reverse a
/// last row has the sum of what the rows before all later pieces give it.
template <class A>
void rows_before(const KernelCall& call) {
  const ir::Attributes& a = call.op->attributes;
  const int64_t ranks = a.integer("ranks"), rows = a.integer("rows"), count = a.integer("count"), P = 2 * ranks;
  const bool reverse = a.integer_or("reverse", 0) != 0;
  const int64_t C = call.in[0].dim(1), made = reverse ? rows : count, taken = reverse ? count : rows;
  const Input<A> x(call.in[0]);
  const Output<A> y(call.out[0]);
  y.fill(A(0));
  for (int64_t n = 0; made > 0 && n < call.out[0].dim(0) / made; ++n) {
    const int64_t p = piece_of(call, ranks, n % 2), first = n / 2 * P * taken;
    for (int64_t j = 0; j < made; ++j) {
      A* to = y.at((n * made + j) * C);
      if (!reverse) {
        const int64_t from = p * rows - count + j;
        if (from >= 0) std::copy_n(x.at((first + from) * C), C, to);
        continue;
      }
      for (int64_t later = p + 1; later < P; ++later) {
        const int64_t of = (p - later) * rows + count + j;
        for (int64_t c = 0; of >= 0 && of < count && c < C; ++c) to[c] += x[(first + later * count + of) * C + c];
      }
    }
  }
}

/// Tails are the last (K − 1)·D rows of each sequence, the oldest first.
template <class A>
void cached_conv(const KernelCall& call) {
  const Input<A> x(call.in[0]), weight(call.in[1]), bias(operand(call.in, 2));
  const int64_t R = call.in[0].dim(0), C = call.in[0].dim(1), K = call.in[1].dim(1);
  const int64_t S = call.op->attributes.integer("sequence");
  const bool bent = call.op->attributes.integer_or("silu", 0) != 0;
  const auto* places = named_operand(call, "places").as<const int32_t>();
  const Input<A> before(call.updates[0]);
  const int64_t D = call.op->attributes.integer_or("dilation", 1), kept = (K - 1) * D * C;
  std::vector<A> tails(before.at(0), before.at(0) + call.updates[0].elements());
  const Output<A> y(call.out[0]);
  for (int64_t t = 0; t < R; ++t) {
    HEDDLE_CHECK(places[t] < S * call.updates[0].dim(0), "row {} of {} sequences", places[t],
                 call.updates[0].dim(0));
    for (int64_t c = 0; c < C; ++c) y[t * C + c] = 0;
    if (places[t] < 0) continue;
    A* tail = tails.data() + places[t] / S * kept;
    if (places[t] % S == 0) std::fill_n(tail, kept, A(0));
    for (int64_t c = 0; c < C; ++c) {
      A z = (bias ? bias[c] : A(0)) + weight[c * K + K - 1] * x[t * C + c];
      for (int64_t i = 1; i < K; ++i) z += weight[c * K + K - 1 - i] * tail[(K - 1 - i) * D * C + c];
      y[t * C + c] = bent ? silu(z) : z;
    }
    if (K == 1) continue;
    std::copy(tail + C, tail + kept, tail);
    std::copy_n(x.at(t * C), C, tail + kept - C);
  }
  const Output<A> after(call.updates[0]);
  std::copy(tails.begin(), tails.end(), after.at(0));
}

template <class A>
A softplus(A x) {
  return std::max(x, A(0)) + std::log1p(std::exp(-std::abs(x)));
}

struct Limits {
  explicit Limits(const ir::Op& op)
      : least(op.attributes.number_or("least", 0)), most(op.attributes.number_or("most", HUGE_VAL)) {}
  double least, most;
};

template <class A>
void log_decay(const KernelCall& call) {
  const Input<A> x(call.in[0]), a_log(call.in[1]), bias(operand(call.in, 2));
  const int64_t T = call.in[0].dim(0), C = call.in[0].dim(1), run = C / call.in[1].dim(0);
  const Limits limits(*call.op);
  const double bound = call.op->attributes.number_or("bound", 0);
  const Output<A> decay(call.out[0]), step(call.out.size() > 1 ? call.out[1] : TensorView{.dtype = dtype_of<A>});
  for (int64_t i = 0; i < T * C; ++i) {
    const int64_t c = i % C;
    if (bound != 0) {
      decay[i] = static_cast<A>(bound) * sigmoid(std::exp(a_log[c / run]) * (x[i] + (bias ? bias[c] : A(0))));
      continue;
    }
    const A dt = std::clamp(softplus(x[i] + (bias ? bias[c] : A(0))), static_cast<A>(limits.least),
                            static_cast<A>(limits.most));
    decay[i] = -std::exp(a_log[c / run]) * dt;
    if (call.out.size() > 1) step[i] = dt;
  }
}

/// ddt = dstep − exp(a_log)·ddecay, nothing where it is cut; dx = ddt·σ(x + bias), da_log = Σ ddecay·decay. With a
/// bound, where s = σ(z) and z = exp(a_log)·(x + bias): dz = ddecay·bound·s·(1 − s), dx = exp(a_log)·dz, da_log =
/// Σ dz·z.
template <class A>
void log_decay_dgrad(const KernelCall& call) {
  const Input<A> x(call.in[0]), a_log(call.in[1]), bias(operand(call.in, 2));
  const Input<A> ddecay(operand(call.in, 3)), dstep(operand(call.in, 4));
  const int64_t T = call.in[0].dim(0), C = call.in[0].dim(1), run = C / call.in[1].dim(0);
  const Limits limits(*call.op);
  const double bound = call.op->attributes.number_or("bound", 0);
  const Output<A> dx(call.out[0]), da(call.out[1]), db(bias ? call.out[2] : TensorView{.dtype = dtype_of<A>});
  da.fill(A(0));
  if (bias) db.fill(A(0));
  for (int64_t i = 0; i < T * C; ++i) {
    const int64_t c = i % C;
    const A in = x[i] + (bias ? bias[c] : A(0)), free = softplus(in), rate = std::exp(a_log[c / run]);
    const A dt = std::clamp(free, static_cast<A>(limits.least), static_cast<A>(limits.most));
    A d = dstep ? dstep[i] : A(0);
    if (bound != 0) {
      const A z = rate * in, s = sigmoid(z), dz = ddecay[i] * static_cast<A>(bound) * s * (1 - s);
      d = rate * dz;
      da[c / run] += dz * z;
    } else {
      if (ddecay) {
        d -= rate * ddecay[i];
        da[c / run] -= ddecay[i] * rate * dt;
      }
      d = free == dt ? d * sigmoid(in) : A(0);
    }
    dx[i] = d;
    if (bias) db[c] += d;
  }
}

struct GatedNorm {
  explicit GatedNorm(const KernelCall& call, size_t x)
      : C(call.in[x].dim(1)),
        run(call.op->attributes.integer("run")),
        G(call.in[x + 2].dim(0)),
        N(call.in[x].elements() / run),
        first(call.op->attributes.integer_or("gate_first", 0) != 0),
        sigmoid(call.op->attributes.integer_or("sigmoid", 0) != 0),
        epsilon(call.op->attributes.number("epsilon")) {}
  int64_t C, run, G, N;  // columns, those of a norm, those of the gain; norms in all
  bool first, sigmoid;
  double epsilon;
  template <class A>
  A act(A z) const {
    return sigmoid ? reference::sigmoid(z) : silu(z);
  }
  template <class A>
  A slope(A z) const {
    if (!sigmoid) return silu_slope(z);
    const A s = reference::sigmoid(z);
    return s * (A(1) - s);
  }
};

/// n of x or of x·act(gate); y = n·rstd·g, times act(gate) unless that was first.
template <class A>
void gated_norm(const KernelCall& call) {
  const GatedNorm s(call, 0);
  const Input<A> x(call.in[0]), gate(call.in[1]), g(call.in[2]);
  const Output<A> y(call.out[0]), rstd(call.out[1]);
  for (int64_t n = 0; n < s.N; ++n) {
    A sum = 0;
    const auto normed = [&](int64_t i) { return s.first ? x[i] * s.act(gate[i]) : x[i]; };
    for (int64_t i = n * s.run; i < (n + 1) * s.run; ++i) sum += normed(i) * normed(i);
    rstd[n] = A(1) / std::sqrt(sum / static_cast<A>(s.run) + static_cast<A>(s.epsilon));
    for (int64_t i = n * s.run; i < (n + 1) * s.run; ++i)
      y[i] = normed(i) * rstd[n] * g[i % s.C % s.G] * (s.first ? A(1) : s.act(gate[i]));
  }
}

/// With n what is normed and e = dy·g (·act(gate)): dn = rstd·(e − n·rstd²·mean(e·n)), dg = Σ dy·n·rstd
/// (·act(gate)).
template <class A>
void gated_norm_dgrad(const KernelCall& call) {
  const GatedNorm s(call, 1);
  const Input<A> dy(call.in[0]), x(call.in[1]), gate(call.in[2]), g(call.in[3]), rstd(call.in[4]);
  const Output<A> dx(call.out[0]), dgate(call.out[1]), dg(call.out[2]);
  dg.fill(A(0));
  for (int64_t n = 0; n < s.N; ++n) {
    A sum = 0;
    const auto normed = [&](int64_t i) { return s.first ? x[i] * s.act(gate[i]) : x[i]; };
    const auto behind = [&](int64_t i) { return s.first ? A(1) : s.act(gate[i]); };
    const auto gain = [&](int64_t i) { return i % s.C % s.G; };
    for (int64_t i = n * s.run; i < (n + 1) * s.run; ++i) sum += dy[i] * g[gain(i)] * behind(i) * normed(i);
    const A along = rstd[n] * rstd[n] * sum / static_cast<A>(s.run);
    for (int64_t i = n * s.run; i < (n + 1) * s.run; ++i) {
      const A dn = rstd[n] * (dy[i] * g[gain(i)] * behind(i) - normed(i) * along);
      dg[gain(i)] += dy[i] * normed(i) * rstd[n] * behind(i);
      dx[i] = s.first ? dn * s.act(gate[i]) : dn;
      dgate[i] = s.slope(gate[i]) * (s.first ? dn * x[i] : dy[i] * normed(i) * rstd[n] * g[gain(i)]);
    }
  }
}

}  // namespace

std::vector<KernelEntry> convolution_kernels() {
  return {entry("causal_conv", by_type<in0, causal_conv<float>, causal_conv<double>>),
          entry("causal_conv_dgrad", by_type<in0, causal_conv_dgrad<float>, causal_conv_dgrad<double>>),
          entry("causal_conv_before_dgrad",
                by_type<in0, causal_conv_before_dgrad<float>, causal_conv_before_dgrad<double>>),
          entry("piece_ends", piece_ends),
          entry("rows_before", by_type<in0, rows_before<float>, rows_before<double>>),
          entry("cached_conv", by_type<in0, cached_conv<float>, cached_conv<double>>),
          entry("log_decay", by_type<in0, log_decay<float>, log_decay<double>>),
          entry("log_decay_dgrad", by_type<in0, log_decay_dgrad<float>, log_decay_dgrad<double>>),
          entry("gated_norm", by_type<in0, gated_norm<float>, gated_norm<double>>),
          entry("gated_norm_dgrad", by_type<in0, gated_norm_dgrad<float>, gated_norm_dgrad<double>>)};
}

}  // namespace heddle::kernels::reference
