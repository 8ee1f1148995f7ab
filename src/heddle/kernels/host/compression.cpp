// Makes entries of many tokens, lists the keys that queries see, and maps groups of heads (ops/compression.cpp).
// Vectors hold an entry's elements side by side; its tokens come one after the other. Threads share gradients by
// entries, each of which writes to its own tokens' columns. They share the bias's gradient by places in a window.
#include "heddle/kernels/host/simd_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "heddle/kernels/host/compression.cpp"
#include <cstring>

#include "heddle/kernels/host/host.h"
#include "heddle/kernels/host/linear_operands.h"
#include "heddle/kernels/host/row_pieces.h"
#include "heddle/kernels/query_rows.h"
#include "hwy/foreach_target.h"
// The order matters: this one is compiled for each target.
#include "heddle/kernels/host/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heddle::kernels::host::HWY_NAMESPACE {
namespace {
using device::KernelCall;

/// Finds the tokens of entries. c, z and bias are operands from c_at on.
template <class X>
struct EntryTokens {
  EntryTokens(const KernelCall& call, size_t c_at)
      : S(call.op->attributes.integer("sequence")),
        m(call.op->attributes.integer("rate")),
        series(call.op->attributes.integer_or("series", 1)),
        columns(call.in[c_at].columns()),
        d(columns / series),
        E(S / m),
        c(call.in[c_at].as<const X>()),
        z(named_operand(call, "z").as<const X>()),
        bias(named_operand(call, "bias").as<const float>()),
        starts(named_operand(call, "starts").as<const int32_t>()) {}

  /// Returns the first of an entry's series · m tokens that takes part.
  HWY_INLINE int64_t first(int64_t sequence, int64_t entry) const {
    const int64_t before = (entry + 1 - series) * m;  // the position of token 0
    const int64_t start = starts == nullptr ? 0 : starts[sequence * S + (entry + 1) * m - 1];
    return std::max<int64_t>(start, 0) > before ? std::max<int64_t>(start, 0) - before : 0;
  }
  HWY_INLINE int64_t at(int64_t sequence, int64_t entry, int64_t n) const {
    return (sequence * S + (entry + 1 - series) * m + n) * columns + (n / m) * d;
  }
  HWY_INLINE const float* bias_of(int64_t n) const { return bias + n % m * columns + (n / m) * d; }

  /// The greatest z + bias of a vector of columns, 1 ÷ the sum of exponentials, and the entry.
  struct Softened {
    V most, scale, e;
  };
  template <class Lanes>
  HWY_INLINE Softened soften(int64_t sequence, int64_t entry, int64_t i, Lanes lanes) const {
    const int64_t from = first(sequence, entry), to = series * m;
    V most = set(-3.4e38f), sum = zero(), e = zero();
    for (int64_t n = from; n < to; ++n) most = hn::Max(most, score(sequence, entry, n, i, lanes));
    for (int64_t n = from; n < to; ++n) {
      const V p = exp_up_to_88(hn::Sub(score(sequence, entry, n, i, lanes), most));
      sum = hn::Add(sum, p);
      e = hn::MulAdd(p, load(c + at(sequence, entry, n) + i, lanes), e);
    }
    const V scale = hn::Div(set(1.0f), sum);
    return {most, scale, hn::Mul(e, scale)};
  }
  template <class Lanes>
  HWY_INLINE V score(int64_t sequence, int64_t entry, int64_t n, int64_t i, Lanes lanes) const {
    if (z == nullptr) return zero();
    return hn::Add(load(z + at(sequence, entry, n) + i, lanes), load(bias_of(n) + i, lanes));
  }

  int64_t S, m, series, columns, d, E;
  const X *c, *z;
  const float* bias;
  const int32_t* starts;
};

template <class X>
void compress_entries(const KernelCall& call, int64_t begin, int64_t end) {
  const EntryTokens<X> of(call, 0);
  const auto* places = named_operand(call, "places").as<const int32_t>();
  for (int64_t r = begin; r < end; ++r) {
    const int64_t place = places == nullptr ? r / of.E * of.S + (r % of.E + 1) * of.m - 1 : places[r];
    X* e = call.out[0].as<X>() + r * of.d;
    if (place < 0 || (place % of.S + 1) % of.m != 0) {
      std::memset(static_cast<void*>(e), 0, static_cast<size_t>(of.d) * sizeof(X));
      continue;
    }
    const int64_t sequence = place / of.S, entry = place % of.S / of.m;
    sweep(of.d, [&](int64_t i, auto lanes, auto)
                    HEDDLE_BODY { store(of.soften(sequence, entry, i, lanes).e, e + i, lanes); });
  }
}

template <class X>
void compress_gradient(const KernelCall& call, int64_t begin, int64_t end) {
  const EntryTokens<X> of(call, 1);
  X *dc = call.out[0].as<X>(), *dz = of.z == nullptr ? nullptr : call.out[1].as<X>();
  for (int64_t r = begin; r < end; ++r) {
    const int64_t sequence = r / of.E, entry = r % of.E;
    const X* de = call.in[0].as<const X>() + r * of.d;
    sweep(of.d, [&](int64_t i, auto lanes, auto) HEDDLE_BODY {
      const auto softened = of.soften(sequence, entry, i, lanes);
      const V d = hn::Mul(load(de + i, lanes), softened.scale);
      for (int64_t n = of.first(sequence, entry); n < of.series * of.m; ++n) {
        const int64_t at = of.at(sequence, entry, n) + i;
        const V p = hn::Mul(d, exp_up_to_88(hn::Sub(of.score(sequence, entry, n, i, lanes), softened.most)));
        store(p, dc + at, lanes);
        if (dz != nullptr) store(hn::Mul(p, hn::Sub(load(of.c + at, lanes), softened.e)), dz + at, lanes);
      }
    });
  }
}

template <class X>
void bias_sums(const KernelCall& call, int64_t begin, int64_t end) {
  const int64_t S = call.op->attributes.integer("sequence"), m = call.updates[0].dim(0);
  const int64_t columns = call.in[0].columns(), T = call.in[0].dim(0);
  const X* dz = call.in[0].as<const X>();
  for (int64_t j = begin; j < end; ++j) {
    float* acc = call.updates[0].as<float>() + j * columns;
    sweep(columns, [&](int64_t i, auto lanes, auto) HEDDLE_BODY {
      V sum = zero();
      for (int64_t first = 0; first < T; first += S) {
        for (int64_t t = first + j; t < first + S; t += m) sum = hn::Add(sum, load(dz + t * columns + i, lanes));
      }
      const V before = load(static_cast<const float*>(acc) + i, lanes);
      store(call.overwrite ? sum : hn::Add(before, sum), acc + i, lanes);
    });
  }
}
}  // namespace

void CompressRows(const KernelCall& call, int64_t begin, int64_t end) {
  call.in[0].dtype == Dtype::bf16 ? compress_entries<bf16>(call, begin, end)
                                  : compress_entries<float>(call, begin, end);
}
void CompressGradRows(const KernelCall& call, int64_t begin, int64_t end) {
  call.in[0].dtype == Dtype::bf16 ? compress_gradient<bf16>(call, begin, end)
                                  : compress_gradient<float>(call, begin, end);
}
void CompressBiasRows(const KernelCall& call, int64_t begin, int64_t end) {
  call.in[0].dtype == Dtype::bf16 ? bias_sums<bf16>(call, begin, end) : bias_sums<float>(call, begin, end);
}

}  // namespace heddle::kernels::host::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heddle::kernels::host {
namespace {
using device::KernelCall;
using device::TensorView;
HWY_EXPORT(CompressRows);
HWY_EXPORT(CompressGradRows);
HWY_EXPORT(CompressBiasRows);

int64_t tokens_bytes(const KernelCall& call, size_t c) {
  return call.in[c].columns() * call.op->attributes.integer("rate") * 16;
}

void compress_rows(const KernelCall& call) {
  over_rows(call.out[0].dim(0), tokens_bytes(call, 0), [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(CompressRows)(call, begin, end);
  });
}

void compress_rows_dgrad(const KernelCall& call) {
  for (const TensorView& out : call.out) {
    const int64_t pitch = out.columns() * size_of(out.dtype);
    over_rows(out.dim(0), pitch, [&](int64_t begin, int64_t end) {
      std::memset(out.as<std::byte>() + begin * pitch, 0, static_cast<size_t>((end - begin) * pitch));
    });
  }
  over_rows(call.in[0].dim(0), 2 * tokens_bytes(call, 1), [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(CompressGradRows)(call, begin, end);
  });
}

void compress_bias_wgrad(const KernelCall& call) {
  const int64_t m = call.updates[0].dim(0);
  over_rows(m, call.in[0].dim(0) / m * call.in[0].columns() * 4, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(CompressBiasRows)(call, begin, end);
  });
}

/// S + E rows a sequence, and its S rows and E entries apart.
void copy_joined(const KernelCall& call, const TensorView& k, const TensorView& e, const TensorView& joined,
                 bool join) {
  const int64_t S = call.op->attributes.integer("sequence"), E = S / call.op->attributes.integer("rate");
  const int64_t pitch = k.columns() * size_of(k.dtype);
  over_rows(k.dim(0) / S * (S + E), 2 * pitch, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const int64_t b = r / (S + E), n = r % (S + E);
      std::byte* apart =
          n < S ? k.as<std::byte>() + (b * S + n) * pitch : e.as<std::byte>() + (b * E + n - S) * pitch;
      std::byte* together = joined.as<std::byte>() + r * pitch;
      std::memcpy(join ? together : apart, join ? apart : together, static_cast<size_t>(pitch));
    }
  });
}
void join_entries(const KernelCall& call) { copy_joined(call, call.in[0], call.in[1], call.out[0], true); }
void split_entries(const KernelCall& call) { copy_joined(call, call.out[0], call.out[1], call.in[0], false); }

int64_t groups_of_block(const ir::Op& op) { return op.attributes.integer("groups"); }

/// Columns of group g of rows that hold all groups side by side.
template <class Rows>
Rows columns_of_group(const TensorView& view, int64_t g, int64_t groups) {
  const int64_t width = view.columns() / groups;
  return {view.as<std::byte>() + g * width * size_of(view.dtype), view.dtype, view.columns()};
}
/// Rows of group g of a weight or of its sum.
std::byte* rows_of_group(const TensorView& view, int64_t g, int64_t groups) {
  return view.as<std::byte>() + g * (view.dim(0) / groups) * view.dim(1) * size_of(view.dtype);
}

int64_t block_scratch(const ir::Listing& listing, const ir::Op& op, const ir::RowCounts& counts) {
  const ir::Value& w = listing.value(op.updates.empty() ? op.in[1] : op.updates[0]);
  const int64_t columns = listing.value(op.in[0]).shape.back().count;
  return product_scratch_bytes(
      {1, listing.elements(op.in[0], counts) / columns, w.shape[0].count / groups_of_block(op), w.shape[1].count});
}
Scratch block_scratch(const KernelCall& call, const TensorView& w) {
  return {call.scratch,
          product_scratch_bytes({1, call.in[0].dim(0), w.dim(0) / groups_of_block(*call.op), w.dim(1)})};
}

void block_linear(const KernelCall& call) {
  const TensorView x = call.in[0], w = call.in[1], y = call.out[0];
  const int64_t G = groups_of_block(*call.op);
  for (int64_t g = 0; g < G; ++g) {
    linear_forward({.groups = RowGroups::one(x.dim(0)),
                    .n = w.dim(0) / G,
                    .k = w.dim(1),
                    .x = columns_of_group<Rows>(x, g, G),
                    .w = {rows_of_group(w, g, G), w.dtype, false},
                    .y = columns_of_group<OutRows>(y, g, G),
                    .scratch = block_scratch(call, w)});
  }
}

void block_linear_dgrad(const KernelCall& call) {
  const TensorView dy = call.in[0], w = call.in[1], dx = call.out[0];
  const int64_t G = groups_of_block(*call.op);
  for (int64_t g = 0; g < G; ++g) {
    linear_dgrad({.groups = RowGroups::one(dy.dim(0)),
                  .n = w.dim(0) / G,
                  .k = w.dim(1),
                  .dy = columns_of_group<Rows>(dy, g, G),
                  .w = {rows_of_group(w, g, G), w.dtype, false},
                  .dx = columns_of_group<OutRows>(dx, g, G),
                  .scratch = block_scratch(call, w)});
  }
}

void block_linear_wgrad(const KernelCall& call) {
  const TensorView x = call.in[0], dy = call.in[1], acc = call.updates[0];
  const int64_t G = groups_of_block(*call.op);
  for (int64_t g = 0; g < G; ++g) {
    linear_wgrad({.groups = RowGroups::one(x.dim(0)),
                  .n = acc.dim(0) / G,
                  .k = acc.dim(1),
                  .dy = columns_of_group<Rows>(dy, g, G),
                  .x = columns_of_group<Rows>(x, g, G),
                  .dw = reinterpret_cast<float*>(rows_of_group(acc, g, G)),
                  .overwrite = call.overwrite,
                  .scratch = block_scratch(call, acc)});
  }
}

void list_keys(const KernelCall& call) {
  const QueryRows rows(call);
  over_rows(call.out[0].dim(0), call.out[0].columns() * 8, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) list_row(rows, call, t);
  });
}

Support compresses(const ir::Listing& listing, const ir::Op& op) {
  const Dtype x = listing.value(op.in[0]).dtype;
  return x == Dtype::bf16 || x == Dtype::f32 ? Support::yes() : Support::no("rows are neither bf16 nor f32");
}
Support any_rows(const ir::Listing&, const ir::Op&) { return Support::yes(); }
Support blocks(const ir::Listing& listing, const ir::Op& op) {
  const bool sums = !op.updates.empty();
  if (sums && listing.value(op.updates[0]).dtype != Dtype::f32) return Support::no("the accumulator is not f32");
  if (!sums && listing.value(op.in[1]).layout == ir::Layout::packed) return Support::no("the weight is packed");
  return product_support(listing, op.in[0], sums ? ir::none : op.in[1], sums ? op.in[1] : op.out[0]);
}

}  // namespace

std::vector<KernelEntry> compression_kernels() {
  return {{"compress_rows", "host", "highway", compresses, nullptr, compress_rows},
          {"compress_rows_dgrad", "host", "highway", compresses, nullptr, compress_rows_dgrad},
          {"compress_bias_wgrad", "host", "highway", compresses, nullptr, compress_bias_wgrad},
          {"list_keys", "host", "rows", any_rows, nullptr, list_keys},
          {"join_entries", "host", "rows", any_rows, nullptr, join_entries},
          {"split_entries", "host", "rows", any_rows, nullptr, split_entries},
          {"block_linear", "host", "gemm", blocks, block_scratch, block_linear, product_engine},
          {"block_linear_dgrad", "host", "gemm", blocks, block_scratch, block_linear_dgrad, product_engine},
          {"block_linear_wgrad", "host", "gemm", blocks, block_scratch, block_linear_wgrad, product_engine}};
}

}  // namespace heddle::kernels::host
#endif  // HWY_ONCE
