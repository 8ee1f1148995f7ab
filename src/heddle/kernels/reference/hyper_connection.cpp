// read_streams, write_streams and the gradients of both; the formulas stand in
// ops/hyper_connection.cpp. T rows of n streams of H columns.
#include <array>
#include <cmath>

#include "heddle/kernels/reference/operands.h"
#include "heddle/kernels/stream_weights.h"

namespace heddle::kernels::reference {
namespace {

int64_t streams_of(const KernelCall& call) { return call.op->attributes.integer("streams"); }

template <class A>
StreamWeights<A> weights_of_op(const KernelCall& call, const TensorView& q) {
  const int64_t n = streams_of(call);
  const ir::Attributes& attributes = call.op->attributes;
  return {.n = static_cast<int>(n),
          .iterations = static_cast<int>(attributes.integer_or("iterations", 1)),
          .writes = q.columns() != n,
          .mixes = q.columns() == n * (2 + n),
          .epsilon = static_cast<A>(attributes.number("epsilon")),
          .magnitude = static_cast<A>(attributes.number_or("magnitude", 2))};
}

template <class A>
void read_streams(const KernelCall& call) {
  const Input<A> x(call.in[0]), q(call.in[1]), base(call.in[2]), scale(call.in[3]);
  const Output<A> y_TH(call.out[0]), w(call.out[1]), rstd_T(call.out[2]);
  const StreamWeights<A> weights = weights_of_op<A>(call, call.in[1]);
  const int64_t n = weights.n, W = weights.count(), T = call.out[0].rows(), H = call.out[0].columns();
  const auto norm_epsilon = static_cast<A>(call.op->attributes.number("norm_epsilon"));
  std::array<A, kStreamRoom> room;
  for (int64_t t = 0; t < T; ++t) {
    const A* row = x.at(t * n * H);
    A squares = 0;
    for (int64_t h = 0; h < n * H; ++h) squares += row[h] * row[h];
    rstd_T[t] = A(1) / std::sqrt(squares / static_cast<A>(n * H) + norm_epsilon);
    weights.make(q.at(t * W), rstd_T[t], base.at(0), scale.at(0), w.at(t * W), room.data());
    for (int64_t h = 0; h < H; ++h) {
      A sum = 0;
      for (int64_t i = 0; i < n; ++i) sum += w[t * W + i] * row[i * H + h];
      y_TH[t * H + h] = sum;
    }
  }
}

/// dx_i = dres_i + pre_i·dy − x_i·rstd³·d(rstd) ÷ (n·H); dbase and dscale are summed in increasing t.
template <class A>
void read_streams_dgrad(const KernelCall& call) {
  const Input<A> dy_TH(call.in[0]), x(call.in[1]), q(call.in[2]), base(call.in[3]), scale(call.in[4]),
      rstd_T(call.in[5]), dw(operand(call.in, 6)), dres(operand(call.in, 7));
  const Output<A> dx(call.out[0]), dq(call.out[1]), dbase(call.out[2]), dscale(call.out[3]);
  const StreamWeights<A> weights = weights_of_op<A>(call, call.in[2]);
  const int64_t n = weights.n, W = weights.count(), T = call.in[0].rows(), H = call.in[0].columns();
  std::array<A, kStreamRoom> room;
  std::array<A, kMostStreams> own;
  const std::vector<A> none(static_cast<size_t>(W), A(0));
  dbase.fill(A(0));
  dscale.fill(A(0));
  for (int64_t t = 0; t < T; ++t) {
    const A *row = x.at(t * n * H), *dy = dy_TH.at(t * H);
    std::array<A, kMostStreams> dpre{};
    for (int64_t i = 0; i < n; ++i) {
      for (int64_t h = 0; h < H; ++h) dpre[i] += dy[h] * row[i * H + h];
    }
    const A rstd = rstd_T[t];
    const A drstd =
        weights.gradient(q.at(t * W), rstd, base.at(0), scale.at(0), dpre.data(), dw ? dw.at(t * W) : none.data(),
                         dq.at(t * W), dbase.at(0), dscale.at(0), room.data());
    weights.make_pre(q.at(t * W), rstd, base.at(0), scale.at(0), own.data());
    const A along = drstd * rstd * rstd * rstd / static_cast<A>(n * H);
    for (int64_t i = 0; i < n; ++i) {
      for (int64_t h = 0; h < H; ++h) {
        const int64_t at = (t * n + i) * H + h;
        const A d = own[i] * dy[h] - x[at] * along;
        dx[at] = dres ? dres[at] + d : d;
      }
    }
  }
}

template <class A>
void write_streams(const KernelCall& call) {
  const Input<A> x(call.in[0]), a_TH(call.in[1]), w(call.in[2]);
  const Output<A> s(call.out[0]);
  const int64_t n = streams_of(call), W = call.in[2].columns(), T = call.in[1].rows(), H = call.in[1].columns();
  const bool mixes = W == n * (2 + n);
  for (int64_t t = 0; t < T; ++t) {
    const A *post = w.at(t * W + first_of_writing(W, static_cast<int>(n))), *comb = post + n;
    for (int64_t k = 0; k < n; ++k) {
      for (int64_t h = 0; h < H; ++h) {
        A sum = post[k] * a_TH[t * H + h];
        if (!mixes) {
          s[(t * n + k) * H + h] = x[(t * n + k) * H + h] + sum;
          continue;
        }
        for (int64_t j = 0; j < n; ++j) sum += comb[j * n + k] * x[(t * n + j) * H + h];
        s[(t * n + k) * H + h] = sum;
      }
    }
  }
}

/// dx_j = Σ_k comb_jk·ds_k, da = Σ_k post_k·ds_k, dpost_k = ds_k·a, dcomb_jk = x_j·ds_k; pre was not read here.
/// Without a mix dx is ds.
template <class A>
void write_streams_dgrad(const KernelCall& call) {
  const Input<A> ds(call.in[0]), x(call.in[1]), a_TH(call.in[2]), w(call.in[3]);
  const Output<A> dx(call.out[0]), da_TH(call.out[1]), dw(call.out[2]);
  const int64_t n = streams_of(call), W = call.in[3].columns(), T = call.in[2].rows(), H = call.in[2].columns();
  const int64_t first = first_of_writing(W, static_cast<int>(n));
  const bool mixes = W == n * (2 + n);
  dw.fill(A(0));
  for (int64_t t = 0; t < T; ++t) {
    const A *post = w.at(t * W + first), *comb = post + n;
    A *dpost = dw.at(t * W + first), *dcomb = dpost + n;
    for (int64_t h = 0; h < H; ++h) {
      A da = 0;
      for (int64_t k = 0; k < n; ++k) {
        const A d = ds[(t * n + k) * H + h];
        da += post[k] * d;
        dpost[k] += d * a_TH[t * H + h];
      }
      da_TH[t * H + h] = da;
      for (int64_t j = 0; j < n; ++j) {
        if (!mixes) {
          dx[(t * n + j) * H + h] = ds[(t * n + j) * H + h];
          continue;
        }
        A sum = 0;
        for (int64_t k = 0; k < n; ++k) {
          const A d = ds[(t * n + k) * H + h];
          sum += comb[j * n + k] * d;
          dcomb[j * n + k] += x[(t * n + j) * H + h] * d;
        }
        dx[(t * n + j) * H + h] = sum;
      }
    }
  }
}

}  // namespace

std::vector<KernelEntry> hyper_connection_kernels() {
  return {entry("read_streams", by_type<in0, read_streams<float>, read_streams<double>>),
          entry("read_streams_dgrad", by_type<in0, read_streams_dgrad<float>, read_streams_dgrad<double>>),
          entry("write_streams", by_type<in0, write_streams<float>, write_streams<double>>),
          entry("write_streams_dgrad", by_type<in0, write_streams_dgrad<float>, write_streams_dgrad<double>>)};
}

}  // namespace heddle::kernels::reference
