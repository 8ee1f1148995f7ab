// Products of operands in eight bits on the CPU, which multiplies no such numbers. Operands are rounded into
// scratch as ops/fp8_blocks.h defines. There they are bf16, exactly, and go to the products of bf16. T rows, K in,
// N out; R rows sorted by expert, E experts.
#include "heddle/kernels/host/fp8.h"

#include <algorithm>
#include <array>
#include <vector>

#include "heddle/kernels/host/host.h"
#include "heddle/kernels/host/linear_operands.h"
#include "heddle/ops/fp8_blocks.h"

namespace heddle::kernels::host {
namespace {

using device::KernelCall;
using device::TensorView;
using fp8::kBlock;

/// A number of bf16 that has no more digits than that.
bf16 cut(float exact) {
  bf16 number;
  number.bits = static_cast<uint16_t>(std::bit_cast<uint32_t>(exact) >> 16);
  return number;
}

/// A matrix that is read by number: bf16, f32, or rows of bytes with their scales.
struct Narrow {
  const bf16* at;
  int64_t columns;
  float operator()(int64_t r, int64_t c) const { return at[r * columns + c]; }
};
struct Wide {
  const float* at;
  int64_t columns;
  float operator()(int64_t r, int64_t c) const { return at[r * columns + c]; }
};
struct Bytes {
  const uint8_t *at, *scales;
  int64_t columns;
  const std::array<float, 256>& number_of;
  float operator()(int64_t r, int64_t c) const {
    return number_of[at[r * columns + c]] * fp8::scale_of(scales[r * fp8::blocks_of(columns) + c / kBlock]);
  }
};

const std::array<float, 256>& numbers_of_bytes() {
  static const std::array<float, 256> all = [] {
    std::array<float, 256> numbers{};
    for (int byte = 0; byte < 256; ++byte) numbers[byte] = fp8::number_of(static_cast<uint8_t>(byte));
    return numbers;
  }();
  return all;
}

template <class Body>
void by_type(const TensorView& x, Body body) {
  if (x.dtype == Dtype::bf16) return body(Narrow{x.as<const bf16>(), x.columns()});
  body(Wide{x.as<const float>(), x.columns()});
}

/// The block of rows [r0, r1) and columns [c0, c1), rounded together into `to`.
template <class From>
void round_block(const From& from, int64_t r0, int64_t r1, int64_t c0, int64_t c1, bf16* to) {
  float most = 0;
  for (int64_t r = r0; r < r1; ++r) {
    for (int64_t c = c0; c < c1; ++c) most = fp8::larger(most, from(r, c));
  }
  const uint8_t scale = fp8::scale_for(most);
  for (int64_t r = r0; r < r1; ++r) {
    for (int64_t c = c0; c < c1; ++c) to[r * from.columns + c] = cut(fp8::in_block(from(r, c), scale));
  }
}

/// Columns of rows [r0, r1), each of them rounded by itself into `to`, 128 side by side so that memory is read in
/// its order.
template <class From>
void round_columns(const From& from, int64_t r0, int64_t r1, int64_t c0, int64_t c1, bf16* to) {
  std::array<float, kBlock> most{};
  for (int64_t r = r0; r < r1; ++r) {
    for (int64_t c = c0; c < c1; ++c) {
      float& of = most[c - c0];
      of = fp8::larger(of, from(r, c));
    }
  }
  std::array<uint8_t, kBlock> scale{};
  for (int64_t c = c0; c < c1; ++c) scale[c - c0] = fp8::scale_for(most[c - c0]);
  for (int64_t r = r0; r < r1; ++r) {
    for (int64_t c = c0; c < c1; ++c) {
      to[r * from.columns + c] = cut(fp8::in_block(from(r, c), scale[c - c0]));
    }
  }
}

/// Matrices of bf16 in scratch, one behind the other, at multiples of 64 bytes; with a null base it only counts.
class Pool {
 public:
  explicit Pool(std::byte* base) : base_(base) {}
  bf16* take(int64_t elements) {
    auto* at = reinterpret_cast<bf16*>(base_ + bytes_);
    bytes_ += (elements * 2 + 63) / 64 * 64;
    return at;
  }
  /// Room in scratch for a view of this shape in bf16.
  TensorView take(TensorView like) {
    like.data = take(like.elements());
    like.dtype = Dtype::bf16;
    return like;
  }
  int64_t bytes() const { return bytes_; }

 private:
  std::byte* base_;
  int64_t bytes_ = 0;
};

/// 128 columns of a row together.
TensorView rounded_along_rows(const TensorView& x, Pool& pool) {
  const TensorView to = pool.take(x);
  const int64_t T = x.dim(0), K = x.dim(1);
  by_type(x, [&](const auto& from) {
#pragma omp parallel for schedule(static)
    for (int64_t t = 0; t < T; ++t) {
      for (int64_t k = 0; k < K; k += kBlock)
        round_block(from, t, t + 1, k, std::min(k + kBlock, K), to.as<bf16>());
    }
  });
  return to;
}

/// 128 × 128 of each matrix together; absent stays absent.
TensorView rounded_weight(const TensorView& w, Pool& pool) {
  if (!w) return {};
  const TensorView to = pool.take(w);
  const int64_t K = w.dim(w.rank - 1), N = w.dim(w.rank - 2), E = w.rank == 3 ? w.dim(0) : 1;
  const int64_t down = fp8::blocks_of(N), across = fp8::blocks_of(K);
  by_type(w, [&](const auto& from) {
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < E * down * across; ++i) {
      const int64_t first = i / (down * across) * N, n = i / across % down * kBlock, k = i % across * kBlock;
      round_block(from, first + n, first + std::min(n + kBlock, N), k, std::min(k + kBlock, K), to.as<bf16>());
    }
  });
  return to;
}

/// A weight of a call, rounded here or ahead. `w`: where it stands among the operands.
TensorView weight_of(const KernelCall& call, size_t w, size_t scales_at, Pool& pool) {
  const TensorView bytes = call.in[w], scales = operand(call.in, scales_at);
  if (!scales) return rounded_weight(bytes, pool);
  const TensorView to = pool.take(bytes);
  const int64_t K = bytes.dim(bytes.rank - 1), N = bytes.dim(bytes.rank - 2), E = bytes.elements() / (N * K);
  const int64_t down = fp8::blocks_of(N), across = fp8::blocks_of(K);
  const std::array<float, 256>& number_of = numbers_of_bytes();
#pragma omp parallel for schedule(static)
  for (int64_t row = 0; row < E * N; ++row) {
    const uint8_t* scale = scales.as<const uint8_t>() + (row / N * down + row % N / kBlock) * across;
    const uint8_t* from = bytes.as<const uint8_t>() + row * K;
    bf16* numbers = to.as<bf16>() + row * K;
    for (int64_t k0 = 0; k0 < K; k0 += kBlock) {
      const float of_block = fp8::scale_of(scale[k0 / kBlock]);
      for (int64_t k = k0; k < std::min(k0 + kBlock, K); ++k) numbers[k] = cut(number_of[from[k]] * of_block);
    }
  }
  return to;
}

/// The numbers of rows that are rounded.
TensorView numbers_of(const TensorView& q, const TensorView& scales, Pool& pool) {
  const TensorView to = pool.take(q);
  const int64_t T = q.dim(0), K = q.dim(1);
  const Bytes from{q.as<const uint8_t>(), scales.as<const uint8_t>(), K, numbers_of_bytes()};
#pragma omp parallel for schedule(static)
  for (int64_t t = 0; t < T; ++t) {
    for (int64_t k = 0; k < K; ++k) to.as<bf16>()[t * K + k] = cut(from(t, k));
  }
  return to;
}

/// 128 rows of a column together, from the first row of each expert on.
template <class From>
void round_along_columns(const From& from, const TensorView& offsets, int64_t rows, bf16* to) {
  struct Rows {
    int64_t begin, end;
  };
  std::vector<Rows> blocks;
  const int64_t groups = offsets ? offsets.elements() - 1 : 1;
  for (int64_t g = 0; g < groups; ++g) {
    const int64_t end = offsets ? offsets.as<const int32_t>()[g + 1] : rows;
    for (int64_t r = offsets ? offsets.as<const int32_t>()[g] : 0; r < end; r += kBlock)
      blocks.push_back({r, std::min(r + kBlock, end)});
  }
  const int64_t across = fp8::blocks_of(from.columns);
#pragma omp parallel for schedule(static)
  for (int64_t i = 0; i < std::ssize(blocks) * across; ++i) {
    const Rows of = blocks[i / across];
    const int64_t c = i % across * kBlock;
    round_columns(from, of.begin, of.end, c, std::min(c + kBlock, from.columns), to);
  }
}

/// The kernel of another op, and the scratch that it wants.
const KernelEntry& product_of(std::string_view kind) {
  static const std::vector<KernelEntry> all = [] {
    std::vector<KernelEntry> list = linear_kernels();
    for (const KernelEntry& each : grouped_linear_kernels()) list.push_back(each);
    return list;
  }();
  for (const KernelEntry& each : all) {
    if (each.op_kind == kind) return each;
  }
  internal_error("no products for '{}'", kind);
}

/// Runs a product on other operands, which are in the pool.
void multiply(std::string_view kind, const KernelCall& call, std::span<const TensorView> in, const Pool& pool) {
  KernelCall product = call;
  product.in = in;
  product.scratch = call.scratch + pool.bytes();
  product_of(kind).run(product);
}

void round_rows(const KernelCall& call) {
  const int64_t T = call.in[0].dim(0), K = call.in[0].dim(1), blocks = fp8::blocks_of(K);
  auto *q = call.out[0].as<uint8_t>(), *scales = call.out[1].as<uint8_t>();
  by_type(call.in[0], [&](const auto& x) {
#pragma omp parallel for schedule(static)
    for (int64_t t = 0; t < T; ++t) {
      for (int64_t b = 0; b < blocks; ++b) {
        const int64_t begin = b * kBlock, end = std::min(begin + kBlock, K);
        float most = 0;
        for (int64_t k = begin; k < end; ++k) most = fp8::larger(most, x(t, k));
        const uint8_t scale = scales[t * blocks + b] = fp8::scale_for(most);
        const float inverse = fp8::inverse_of(scale);
        for (int64_t k = begin; k < end; ++k) q[t * K + k] = fp8::byte_of(fp8::rounded(x(t, k) * inverse));
      }
    }
  });
}

void round_weight(const KernelCall& call) {
  const TensorView w = call.in[0];
  const int64_t K = w.dim(w.rank - 1), N = w.dim(w.rank - 2), E = w.elements() / (N * K);
  const int64_t down = fp8::blocks_of(N), across = fp8::blocks_of(K);
  auto *q = call.updates[0].as<uint8_t>(), *scales = call.updates[1].as<uint8_t>();
  by_type(w, [&](const auto& from) {
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < E * down * across; ++i) {
      const int64_t first = i / (down * across) * N, n0 = i / across % down * kBlock, k0 = i % across * kBlock;
      const int64_t end_n = first + std::min(n0 + kBlock, N), end_k = std::min(k0 + kBlock, K);
      float most = 0;
      for (int64_t n = first + n0; n < end_n; ++n) {
        for (int64_t k = k0; k < end_k; ++k) most = fp8::larger(most, from(n, k));
      }
      const float inverse = fp8::inverse_of(scales[i] = fp8::scale_for(most));
      for (int64_t n = first + n0; n < end_n; ++n) {
        for (int64_t k = k0; k < end_k; ++k) q[n * K + k] = fp8::byte_of(fp8::rounded(from(n, k) * inverse));
      }
    }
  });
}

template <bool grouped>
void forward(const KernelCall& call) {
  Pool pool(call.scratch);
  const TensorView x = numbers_of(call.in[0], call.in[1], pool), w = weight_of(call, 2, grouped ? 5 : 4, pool);
  const TensorView copies = rounded_weight(grouped ? operand(call.in, 4) : TensorView{}, pool);
  const std::array in{x, w, operand(call.in, 3), copies};
  multiply(grouped ? "grouped_linear" : "linear", call, std::span(in).first(grouped ? 4 : 3), pool);
}

template <bool grouped>
void dgrad(const KernelCall& call) {
  Pool pool(call.scratch);
  const TensorView dy = rounded_along_rows(call.in[0], pool), w = weight_of(call, 1, grouped ? 4 : 2, pool);
  const TensorView copies = rounded_weight(grouped ? operand(call.in, 3) : TensorView{}, pool);
  const std::array in{dy, w, operand(call.in, 2), copies};
  multiply(grouped ? "grouped_linear_dgrad" : "linear_dgrad", call, std::span(in).first(grouped ? 4 : 2), pool);
}

/// bias_acc += Σ_t dy, in increasing t, or in its place.
void sum_columns(const TensorView& dy, float* sum_N, bool overwrite) {
  const int64_t T = dy.dim(0), N = dy.dim(1);
  by_type(dy, [&](const auto& from) {
#pragma omp parallel for schedule(static)
    for (int64_t first = 0; first < N; first += kBlock) {
      std::array<float, kBlock> sum{};
      const int64_t end = std::min(first + kBlock, N);
      for (int64_t t = 0; t < T; ++t) {
        for (int64_t n = first; n < end; ++n) sum[n - first] += from(t, n);
      }
      for (int64_t n = first; n < end; ++n) sum_N[n] = overwrite ? sum[n - first] : sum_N[n] + sum[n - first];
    }
  });
}

template <bool grouped>
void wgrad(const KernelCall& call) {
  Pool pool(call.scratch);
  const TensorView q = call.in[0], given = call.in[2], offsets = grouped ? call.in[3] : TensorView{};
  const TensorView x = pool.take(q), dy = pool.take(given);
  round_along_columns(Bytes{q.as<const uint8_t>(), call.in[1].as<const uint8_t>(), q.dim(1), numbers_of_bytes()},
                      offsets, q.dim(0), x.as<bf16>());
  by_type(given, [&](const auto& from) { round_along_columns(from, offsets, given.dim(0), dy.as<bf16>()); });
  const std::array in{x, dy, offsets};
  KernelCall sums = call;
  sums.updates = call.updates.first(1);
  multiply(grouped ? "grouped_linear_wgrad" : "linear_wgrad", sums, std::span(in).first(grouped ? 3 : 2), pool);
  if (const TensorView bias = operand(call.updates, 1)) sum_columns(given, bias.as<float>(), call.overwrite);
}

/// bf16 or f32 rows, and sums of f32.
Support takes_all(const ir::Listing& listing, const ir::Op& op) {
  if (op.attributes.integer_or("turned", 0) != 0) return Support::no("the weight is turned");
  for (const auto* list : {&op.in, &op.out, &op.updates}) {
    for (const ir::ValueId id : *list) {
      if (id == ir::none) continue;
      const ir::Value& value = listing.value(id);
      if (value.layout == ir::Layout::packed) return Support::no(fmt::format("'{}' is packed", value.name));
      if (value.dtype == Dtype::f64) return Support::no(fmt::format("'{}' is f64", value.name));
    }
  }
  return gemm_supported(Dtype::bf16);
}

int64_t pool_bytes(const ir::Listing& listing, const ir::Op& op, const ir::RowCounts& rows) {
  Pool pool(nullptr);
  for (const std::string_view name : {"q", "dy", "w", "copies"}) {
    if (ir::place_of(name, op.def->operands) < 0) continue;
    const ir::ValueId id = op.operand(name);
    if (id != ir::none) (void)pool.take(listing.elements(id, rows));
  }
  const bool grouped = ir::place_of("offsets", op.def->operands) >= 0;
  const ir::Value& weight = listing.value(op.updates.empty() ? op.operand("w") : op.updates[0]);
  return pool.bytes() + product_scratch_bytes(
                            product_sizes(listing, op.in[0], weight, rows,
                                          grouped ? listing.value(op.operand("offsets")).shape[0].count - 1 : 1));
}

Support takes_weight(const ir::Listing& listing, const ir::Op& op) {
  if (op.updates.size() > 2) return Support::no("the weight is to be turned");
  return takes<"x">(listing, op);
}

std::string_view engine_of(const ir::Listing&, const ir::Op&) { return name_of(best_engine(Dtype::bf16)); }

KernelEntry product(std::string_view kind, device::Kernel run) {
  return {kind, "host", "widened", takes_all, pool_bytes, run, engine_of};
}

}  // namespace

std::vector<KernelEntry> fp8_kernels() {
  return {{"round_rows", "host", "blocks", takes<"x">, nullptr, round_rows},
          {"round_weight", "host", "blocks", takes_weight, nullptr, round_weight},
          product("linear_fp8", forward<false>),
          product("linear_fp8_dgrad", dgrad<false>),
          product("linear_fp8_wgrad", wgrad<false>),
          product("grouped_linear_fp8", forward<true>),
          product("grouped_linear_fp8_dgrad", dgrad<true>),
          product("grouped_linear_fp8_wgrad", wgrad<true>)};
}

}  // namespace heddle::kernels::host
