// Makes entries of many tokens, lists the keys that queries see, and maps groups of heads (ops/compression.cpp). A
// sequence has S positions and E entries of d elements. An entry stands for m tokens, in one or two series.
//   forward:   p = softmax over an entry's tokens of z + bias, e = Σ p·c
//   backward:  dc = p·de, dz = p·de·(c − e), dbias = Σ dz over the windows
#include <cmath>
#include <cstring>
#include <limits>

#include "heddle/kernels/query_rows.h"
#include "heddle/kernels/reference/operands.h"

namespace heddle::kernels::reference {
namespace {

/// Walks the tokens of an entry in increasing position. Of two series the window before comes first, with the first
/// half of its columns.
template <class A>
struct CompressedRows {
  CompressedRows(const KernelCall& call, size_t c_at)
      : S(call.op->attributes.integer("sequence")),
        m(call.op->attributes.integer("rate")),
        series(call.op->attributes.integer_or("series", 1)),
        columns(call.in[c_at].dim(1)),
        d(columns / series),
        E(S / m),
        c(call.in[c_at]),
        z(operand(call.in, c_at + 1)),
        bias(operand(call.in, c_at + 2)),
        starts(named_operand(call, "starts").as<const int32_t>()),
        p(static_cast<size_t>(series * m)) {}

  /// Calls body(n, where in c and z) of the n-th of an entry's tokens, for column i.
  template <class Body>
  void for_each(int64_t sequence, int64_t entry, int64_t i, Body body) const {
    const int64_t last = (entry + 1) * m - 1;
    const int64_t start = starts == nullptr ? 0 : starts[sequence * S + last];
    for (int64_t n = 0; n < series * m; ++n) {
      const int64_t position = (entry + 1 - series) * m + n;
      if (position < start || position < 0) continue;
      body(n, (sequence * S + position) * columns + (n / m) * d + i);
    }
  }
  /// Fills p of a column, and returns the entry's element.
  A element(int64_t sequence, int64_t entry, int64_t i) {
    A most = -std::numeric_limits<A>::infinity(), sum = 0, e = 0;
    for_each(sequence, entry, i, [&](int64_t n, int64_t at) {
      p[n] = !z ? A(0) : z[at] + bias[n % m * columns + (n / m) * d + i];
      most = std::max(most, p[n]);
    });
    for_each(sequence, entry, i, [&](int64_t n, int64_t) { sum += p[n] = std::exp(p[n] - most); });
    for_each(sequence, entry, i, [&](int64_t n, int64_t at) {
      p[n] /= sum;
      e += p[n] * c[at];
    });
    return e;
  }

  int64_t S, m, series, columns, d, E;
  Input<A> c, z, bias;
  const int32_t* starts;
  std::vector<A> p;
};

template <class A>
void compress_rows(const KernelCall& call) {
  CompressedRows<A> of(call, 0);
  const Output<A> e(call.out[0]);
  const auto* places = named_operand(call, "places").as<const int32_t>();
  for (int64_t r = 0; r < call.out[0].dim(0); ++r) {
    const int64_t place = places == nullptr ? r / of.E * of.S + (r % of.E + 1) * of.m - 1 : places[r];
    const bool ends = place >= 0 && (place % of.S + 1) % of.m == 0;
    for (int64_t i = 0; i < of.d; ++i)
      e[r * of.d + i] = ends ? of.element(place / of.S, place % of.S / of.m, i) : A(0);
  }
}

/// The operands are de, c, z?, bias?, starts?.
template <class A>
void compress_rows_dgrad(const KernelCall& call) {
  CompressedRows<A> of(call, 1);
  const Input<A> de(call.in[0]);
  std::vector<Output<A>> d_rows(call.out.begin(), call.out.end());  // dc, and with z dz
  for (const Output<A>& each : d_rows) each.fill(A(0));
  for (int64_t r = 0; r < call.in[0].dim(0); ++r) {
    for (int64_t i = 0; i < of.d; ++i) {
      const A e = of.element(r / of.E, r % of.E, i), d = de[r * of.d + i];
      of.for_each(r / of.E, r % of.E, i, [&](int64_t n, int64_t at) {
        d_rows[0][at] = of.p[n] * d;
        if (of.z) d_rows[1][at] = of.p[n] * d * (of.c[at] - e);
      });
    }
  }
}

template <class A>
void compress_bias_wgrad(const KernelCall& call) {
  const Input<A> dz(call.in[0]);
  const int64_t S = call.op->attributes.integer("sequence"), m = call.updates[0].dim(0),
                columns = call.in[0].dim(1);
  A* acc = accumulator<A>(call.updates[0]);
  std::vector<A> sums(static_cast<size_t>(m * columns), A(0));
  for (int64_t t = 0; t < call.in[0].dim(0); ++t)
    for (int64_t i = 0; i < columns; ++i) sums[t % S % m * columns + i] += dz[t * columns + i];
  for (size_t i = 0; i < sums.size(); ++i) acc[i] = call.overwrite ? sums[i] : acc[i] + sums[i];
}

void list_keys(const KernelCall& call) {
  const QueryRows rows(call);
  for (int64_t t = 0; t < call.out[0].dim(0); ++t) list_row(rows, call, t);
}

/// Rows are bytes here: nothing is rounded. `joined`: S + E rows a sequence.
void copy_joined(const KernelCall& call, const TensorView& k, const TensorView& e, const TensorView& joined,
                 bool join) {
  const int64_t S = call.op->attributes.integer("sequence"), E = S / call.op->attributes.integer("rate");
  const int64_t pitch = k.dim(1) * size_of(k.dtype);
  const auto copy_rows = [&](std::byte* apart, std::byte* together, int64_t rows) {
    std::memcpy(join ? together : apart, join ? apart : together, static_cast<size_t>(rows * pitch));
  };
  for (int64_t b = 0; b < k.dim(0) / S; ++b) {
    std::byte* together = joined.as<std::byte>() + b * (S + E) * pitch;
    copy_rows(k.as<std::byte>() + b * S * pitch, together, S);
    copy_rows(e.as<std::byte>() + b * E * pitch, together + S * pitch, E);
  }
}
void join_entries(const KernelCall& call) { copy_joined(call, call.in[0], call.in[1], call.out[0], true); }
void split_entries(const KernelCall& call) { copy_joined(call, call.out[0], call.out[1], call.in[0], false); }

/// y_g = x_g w_gᵀ; a row's groups lie side by side.
template <class A>
void block_linear(const KernelCall& call) {
  const Input<A> x(call.in[0]), w(call.in[1]);
  const int64_t G = call.op->attributes.integer("groups"), T = call.in[0].dim(0), K = call.in[1].dim(1);
  const int64_t N = call.in[1].dim(0) / G;
  const Output<A> y(call.out[0]);
  for (int64_t t = 0; t < T; ++t) {
    for (int64_t n = 0; n < G * N; ++n) {
      A sum = 0;
      for (int64_t k = 0; k < K; ++k) sum += x[(t * G + n / N) * K + k] * w[n * K + k];
      y[t * G * N + n] = sum;
    }
  }
}

template <class A>
void block_linear_dgrad(const KernelCall& call) {
  const Input<A> dy(call.in[0]), w(call.in[1]);
  const int64_t G = call.op->attributes.integer("groups"), T = call.in[0].dim(0), K = call.in[1].dim(1);
  const int64_t N = call.in[1].dim(0) / G;
  const Output<A> dx(call.out[0]);
  for (int64_t t = 0; t < T; ++t) {
    for (int64_t k = 0; k < G * K; ++k) {
      A sum = 0;
      for (int64_t n = k / K * N; n < (k / K + 1) * N; ++n) sum += dy[t * G * N + n] * w[n * K + k % K];
      dx[t * G * K + k] = sum;
    }
  }
}

template <class A>
void block_linear_wgrad(const KernelCall& call) {
  const Input<A> x(call.in[0]), dy(call.in[1]);
  const int64_t G = call.op->attributes.integer("groups"), T = call.in[0].dim(0), K = call.updates[0].dim(1);
  const int64_t N = call.updates[0].dim(0) / G;
  A* acc = accumulator<A>(call.updates[0]);
  for (int64_t n = 0; n < G * N; ++n) {
    for (int64_t k = 0; k < K; ++k) {
      A sum = 0;
      for (int64_t t = 0; t < T; ++t) sum += dy[t * G * N + n] * x[(t * G + n / N) * K + k];
      A& to = acc[n * K + k];
      to = call.overwrite ? sum : to + sum;
    }
  }
}

}  // namespace

std::vector<KernelEntry> compression_kernels() {
  return {entry("compress_rows", by_type<in0, compress_rows<float>, compress_rows<double>>),
          entry("compress_rows_dgrad", by_type<in0, compress_rows_dgrad<float>, compress_rows_dgrad<double>>),
          entry("compress_bias_wgrad", by_type<in0, compress_bias_wgrad<float>, compress_bias_wgrad<double>>),
          entry("list_keys", list_keys),
          entry("join_entries", join_entries),
          entry("split_entries", split_entries),
          entry("block_linear", by_type<in0, block_linear<float>, block_linear<double>>),
          entry("block_linear_dgrad", by_type<in0, block_linear_dgrad<float>, block_linear_dgrad<double>>),
          entry("block_linear_wgrad", by_type<in0, block_linear_wgrad<float>, block_linear_wgrad<double>>)};
}

}  // namespace heddle::kernels::reference
