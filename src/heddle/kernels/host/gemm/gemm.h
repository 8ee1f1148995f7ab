// Matrix products of the CPU backend: forward, input gradient and weight gradient of a linear layer, plain or
// grouped.
//
// Shapes: T rows, N outputs, K inputs, E experts; group e owns the rows offsets[e] .. offsets[e+1] and the weight
// w_e.
//   forward  y[T,N]    = x[T,K] · w_e[N,K]ᵀ + bias[N]
//   dgrad    dx[T,K]   = dy[T,N] · w_e[N,K]
//   wgrad    dw[E,N,K] = or += dyᵀ x over the rows of each group, fp32; dbias[N] = or += Σ_t dy
// Groups may be empty and of any size; N, K >= 1 are any numbers.
//
// Engines. amx: bf16 tile products with fp32 sums. amx-bf16x3: fp32 products as six bf16 tile products of the
// operands' three bf16 parts, with fp32 sums; as accurate as fp32. Infinities give NaN, and numbers below 2^-102
// lose bits (see gemm_amx_split.h). Engine avx512-bf16: bf16 dot products of pairs with fp32 sums. Engine
// avx512-widen: bf16 operands, of which packed weights stay bf16, widened exactly in registers, and fp32
// multiply-adds. Engine neon_bf16: bf16 products of 2 × 4 by 4 × 2 numbers with fp32 sums. Engines avx512 and
// highway (AVX2, NEON and what Highway knows below them): fp32 multiply-adds of fp32 operands, or one of them bf16,
// widened exactly; highway takes two bf16 operands, too. A weight packed by an engine can be read by that engine
// only; neon_bf16 and highway read rows and pack nothing.
//
// Sums and bits. An element of y or dx is one chain of fp32 additions in increasing k. Its links depend on nothing
// but k. It has the same bits in any group, row position, split into calls and number of threads. An element of dw
// is such a chain over the rows of its group, from the group's first row on. Where dw is added to, the finished sum
// is added, once. Engines differ among each other. An amx link has 32 k (even and odd ones apart); amx-bf16x3 takes
// six such links for each 32 k. An avx512-bf16 link is a pair (k even and the next, rounded as the processor's
// instruction does), a neon_bf16 link has four. The others add one by one (fused, where the machine has it). Both
// amx engines, avx512-bf16 and neon_bf16 take fp32 and bf16 denormals as zero and flush results to zero, and so do
// amx's and avx512-bf16's conversions to bf16.
//
// Memory. Nothing is allocated here; scratch comes from the caller, 64-byte aligned, uninitialised, as large as
// gemm_scratch_bytes says: by the product's sizes, so that a small product has small scratch. Fewer threads run
// when the scratch is smaller than that (at least one thread's share is needed). Outputs must not overlap inputs.
// All calls block, use the OpenMP team of the calling thread, and throw InternalError for arguments against these
// rules.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "heddle/base/dtype.h"
#include "heddle/base/error.h"

namespace heddle::kernels::host {

enum class Engine : uint8_t { best, amx, amx_bf16x3, avx512_bf16, avx512_widen, avx512, neon_bf16, highway };
std::string_view name_of(Engine engine);

/// Says if the engine runs on this machine with operands of this type (bf16 or f32), or why not.
Support engine_supported(Engine engine, Dtype dtype);
/// True if the engine multiplies two bf16 operands and nothing else.
bool takes_bf16_only(Engine engine);
/// The fastest engine for operands of this type; never `best`.
Engine best_engine(Dtype dtype);
/// True if the engine's instructions multiply bf16 numbers as such, rather than the fp32 numbers that they widen
/// to.
bool multiplies_bf16(Engine engine);
/// Says if there is any engine for the type.
Support gemm_supported(Dtype dtype);

/// The rows of each weight. Does not own the offsets.
class RowGroups {
 public:
  /// One group of all rows.
  static RowGroups one(int64_t rows) { return equal(1, rows); }
  /// `count` groups of `rows` rows each.
  static RowGroups equal(int64_t count, int64_t rows);
  /// E = offsets.size() - 1 groups; offsets must not decrease and not be negative.
  explicit RowGroups(std::span<const int32_t> offsets);
  explicit RowGroups(std::span<const int64_t> offsets);

  int64_t count() const { return count_; }
  int64_t begin(int64_t group) const { return narrow_ ? narrow_[group] : wide_ ? wide_[group] : group * rows_; }
  int64_t end(int64_t group) const { return begin(group + 1); }
  /// True if all groups have as many rows by how they were made.
  bool are_equal() const { return narrow_ == nullptr && wide_ == nullptr; }

 private:
  RowGroups() = default;
  int64_t count_ = 1;
  int64_t rows_ = 0;  // of each, where there are no offsets
  const int32_t* narrow_ = nullptr;
  const int64_t* wide_ = nullptr;
};

/// A row-major matrix that is read; `stride` in elements, 0 means that rows lie next to each other.
struct Rows {
  const void* data = nullptr;
  Dtype dtype = Dtype::f32;
  int64_t stride = 0;
};
/// A row-major matrix that is written.
struct OutRows {
  void* data = nullptr;
  Dtype dtype = Dtype::f32;
  int64_t stride = 0;
};

/// The weights of all groups, [E,N,K]. Packed: made by pack_weights for `dtype` and the same E, N, K and engine.
struct Weights {
  const void* data = nullptr;
  Dtype dtype = Dtype::f32;
  bool packed = false;
};

struct Scratch {
  std::byte* data = nullptr;
  int64_t bytes = 0;
};

/// Bytes of a packed weight: a blocking for forward and one for dgrad. 0 when the engine reads rows.
int64_t packed_bytes(Dtype dtype, int64_t experts, int64_t n, int64_t k, Engine engine = Engine::best);

/// Packs weights for an engine that does. Rounds or widens the rows [E,N,K] of `source`, bf16 or f32 and next to
/// each other, to `dtype` and blocks them, with all threads. `packed` is 64-byte aligned.
void pack_weights(Dtype dtype, const void* source, Dtype source_dtype, int64_t experts, int64_t n, int64_t k,
                  void* packed, Engine engine = Engine::best);

/// Sizes that the scratch of a product depends on: groups, the rows of all of them, outputs N and inputs K.
struct ProductSizes {
  int64_t groups = 1, rows = 0, n = 0, k = 0;
};
/// Scratch for each of the products here with these sizes or smaller ones, by an engine (best: by the best one of
/// each type) and `threads` threads (0: omp_get_max_threads()).
int64_t gemm_scratch_bytes(const ProductSizes& sizes, int threads = 0, Engine engine = Engine::best);
/// Scratch for any product here with this many groups, whatever its other sizes.
int64_t gemm_scratch_bytes(int64_t groups, int threads = 0);

struct LinearForward {
  RowGroups groups = RowGroups::one(0);
  int64_t n = 0, k = 0;
  Rows x;
  Weights w;
  const float* bias = nullptr;  // [N], or null
  OutRows y;                    // bf16 or f32, overwritten
  Scratch scratch;
  Engine engine = Engine::best;
};
void linear_forward(const LinearForward& call);

struct LinearDgrad {
  RowGroups groups = RowGroups::one(0);
  int64_t n = 0, k = 0;
  Rows dy;
  Weights w;
  OutRows dx;  // bf16 or f32, overwritten
  Scratch scratch;
  Engine engine = Engine::best;
};
void linear_dgrad(const LinearDgrad& call);

struct LinearWgrad {
  RowGroups groups = RowGroups::one(0);
  int64_t n = 0, k = 0;
  Rows dy, x;
  float* dw = nullptr;     // [E,N,K], or null
  float* dbias = nullptr;  // [E,N], or null
  /// True: dw and dbias hold garbage and are overwritten, with zeros for an empty group. False: added to.
  bool overwrite = false;
  Scratch scratch;
  Engine engine = Engine::best;
};
void linear_wgrad(const LinearWgrad& call);

}  // namespace heddle::kernels::host
