// norm_streams, read_gated_streams, gate_streams and their gradients; the formulas stand in
// ops/gated_streams.cpp. T rows of n streams of H columns.
#include <cmath>

#include "heddle/kernels/reference/operands.h"
#include "heddle/kernels/reference/scalars.h"

namespace heddle::kernels::reference {
namespace {

struct GatedStreams {
  /// `all`: [T, n·H].
  GatedStreams(const KernelCall& call, const TensorView& all)
      : n(call.op->attributes.integer("streams")), T(all.rows()), H(all.columns() / n) {}
  int64_t n, T, H;
};

template <class A>
A stream_offset(const KernelCall& call) {
  return static_cast<A>(call.op->attributes.number_or("offset", 0));
}

template <class A>
void norm_streams(const KernelCall& call) {
  const GatedStreams s(call, call.in[0]);
  const Input<A> x(call.in[0]), g(call.in[1]);
  const A offset = stream_offset<A>(call), epsilon = static_cast<A>(call.op->attributes.number("epsilon"));
  const Output<A> y(call.out[0]), rstd(call.out[1]);
  for (int64_t r = 0; r < s.T * s.n; ++r) {
    A sum = 0;
    for (int64_t h = 0; h < s.H; ++h) sum += x[r * s.H + h] * x[r * s.H + h];
    rstd[r] = A(1) / std::sqrt(sum / static_cast<A>(s.H) + epsilon);
    for (int64_t h = 0; h < s.H; ++h) y[r * s.H + h] = x[r * s.H + h] * rstd[r] * (offset + g[r % s.n * s.H + h]);
  }
}

/// With the offset in g, dx = dres + rstd·(g·dy − x·rstd²·mean(g·dy·x)); dg = Σ_t dy·x·rstd, in increasing t.
template <class A>
void norm_streams_dgrad(const KernelCall& call) {
  const GatedStreams s(call, call.in[1]);
  const Input<A> dy(call.in[0]), x(call.in[1]), g(call.in[2]), rstd(call.in[3]), dres(operand(call.in, 4));
  const A offset = stream_offset<A>(call);
  const Output<A> dx(call.out[0]), dg(call.out[1]);
  dg.fill(A(0));
  for (int64_t r = 0; r < s.T * s.n; ++r) {
    const int64_t gain = r % s.n * s.H, row = r * s.H;
    A sum = 0;
    for (int64_t h = 0; h < s.H; ++h) sum += (offset + g[gain + h]) * dy[row + h] * x[row + h];
    const A along = rstd[r] * rstd[r] * (sum / static_cast<A>(s.H));
    for (int64_t h = 0; h < s.H; ++h) {
      const A d = rstd[r] * ((offset + g[gain + h]) * dy[row + h] - x[row + h] * along);
      dx[row + h] = dres ? dres[row + h] + d : d;
      dg[gain + h] += dy[row + h] * x[row + h] * rstd[r];
    }
  }
}

template <class A>
void read_gated_streams(const KernelCall& call) {
  const GatedStreams s(call, call.in[0]);
  const Input<A> y(call.in[0]), u(call.in[1]), q(operand(call.in, 2));
  const Output<A> r(call.out[0]);
  for (int64_t t = 0; t < s.T; ++t) {
    for (int64_t h = 0; h < s.H; ++h) {
      A sum = 0;
      for (int64_t i = 0; i < s.n; ++i) {
        const int64_t at = (t * s.n + i) * s.H + h;
        sum += sigmoid(u[at]) * y[at];
      }
      r[t * s.H + h] = sum / static_cast<A>(s.n);
    }
  }
  if (!q) return;
  const Output<A> w(call.out[1]);
  for (int64_t i = 0; i < s.T * s.n; ++i) w[i] = A(2) * sigmoid(q[i] / static_cast<A>(s.n));
}

/// dy_i = σ(u_i)·dr ÷ n, du_i = σ′(u_i)·y_i·dr ÷ n; of w = 2σ(q ÷ n), dq = dw·w·(1 − w ÷ 2) ÷ n.
template <class A>
void read_gated_streams_dgrad(const KernelCall& call) {
  const GatedStreams s(call, call.in[1]);
  const Input<A> dr(call.in[0]), y(call.in[1]), u(call.in[2]), w(operand(call.in, 3)), dw(operand(call.in, 4));
  const Output<A> dy(call.out[0]), du(call.out[1]);
  const auto n = static_cast<A>(s.n);
  for (int64_t at = 0; at < s.T * s.n * s.H; ++at) {
    const A d = dr[at / (s.n * s.H) * s.H + at % s.H] / n, gate = sigmoid(u[at]);
    dy[at] = gate * d;
    du[at] = gate * (A(1) - gate) * y[at] * d;
  }
  if (!w) return;
  const Output<A> dq(call.out[2]);
  for (int64_t i = 0; i < s.T * s.n; ++i) dq[i] = dw[i] * w[i] * (A(1) - w[i] / A(2)) / n;
}

/// Σ_h k·y ÷ √H of each stream.
template <class A>
A agreement(const Input<A>& k, const Input<A>& y, int64_t row, int64_t H) {
  A sum = 0;
  for (int64_t h = 0; h < H; ++h) sum += k[row * H + h] * y[row * H + h];
  return sum / std::sqrt(static_cast<A>(H));
}

template <class A>
A root_with_sign(A d) {
  return d == A(0) ? A(0) : std::copysign(std::sqrt(std::max(std::abs(d), static_cast<A>(1e-6))), d);
}

template <class A>
void gate_streams(const KernelCall& call) {
  const GatedStreams s(call, call.in[0]);
  const Input<A> k(call.in[0]), y(call.in[1]), v(call.in[2]);
  const Output<A> to(call.out[0]);
  for (int64_t r = 0; r < s.T * s.n; ++r) {
    const A gate = sigmoid(root_with_sign(agreement(k, y, r, s.H)));
    for (int64_t h = 0; h < s.H; ++h) to[r * s.H + h] = gate * v[r / s.n * s.H + h];
  }
}

/// dv = Σ_i σ_i·ds_i; with de_i = σ_i·(1 − σ_i)·ds_i·v and dd_i = de_i ÷ (2·|e_i|), 0 where d_i is cut:
/// dk_i = dd_i·y_i ÷ √H, dy_i = dd_i·k_i ÷ √H.
template <class A>
void gate_streams_dgrad(const KernelCall& call) {
  const GatedStreams s(call, call.in[1]);
  const Input<A> ds(call.in[0]), k(call.in[1]), y(call.in[2]), v(call.in[3]);
  const Output<A> dk(call.out[0]), dy(call.out[1]), dv(call.out[2]);
  dv.fill(A(0));
  for (int64_t r = 0; r < s.T * s.n; ++r) {
    const A d = agreement(k, y, r, s.H), root = root_with_sign(d), gate = sigmoid(root);
    A along = 0;
    for (int64_t h = 0; h < s.H; ++h) {
      along += ds[r * s.H + h] * v[r / s.n * s.H + h];
      dv[r / s.n * s.H + h] += gate * ds[r * s.H + h];
    }
    const bool cut = std::abs(d) < static_cast<A>(1e-6);
    const A dd =
        cut ? A(0) : gate * (A(1) - gate) * along / (A(2) * std::abs(root)) / std::sqrt(static_cast<A>(s.H));
    for (int64_t h = 0; h < s.H; ++h) {
      dk[r * s.H + h] = dd * y[r * s.H + h];
      dy[r * s.H + h] = dd * k[r * s.H + h];
    }
  }
}

}  // namespace

std::vector<KernelEntry> gated_stream_kernels() {
  return {entry("norm_streams", by_type<in0, norm_streams<float>, norm_streams<double>>),
          entry("norm_streams_dgrad", by_type<in0, norm_streams_dgrad<float>, norm_streams_dgrad<double>>),
          entry("read_gated_streams", by_type<in0, read_gated_streams<float>, read_gated_streams<double>>),
          entry("read_gated_streams_dgrad",
                by_type<in0, read_gated_streams_dgrad<float>, read_gated_streams_dgrad<double>>),
          entry("gate_streams", by_type<in0, gate_streams<float>, gate_streams<double>>),
          entry("gate_streams_dgrad", by_type<in0, gate_streams_dgrad<float>, gate_streams_dgrad<double>>)};
}

}  // namespace heddle::kernels::reference
