// One thread's piece of a product: what the engines implement, what gemm.cpp hands out to threads, and what fused
// kernels build on.
//
// A piece runs on the calling thread, allocates nothing and is independent of every other piece. Its scratch is
// piece_scratch_bytes, 64-byte aligned, its own.
#pragma once

#include <cstddef>
#include <cstdint>

#include "heddle/kernels/host/gemm/gemm.h"

namespace heddle::kernels::host {

/// Columns are blocked in panels of 32; a piece begins at a multiple of it.
constexpr int64_t kPanelColumns = 32;
constexpr int64_t kMostPieceRows = 256;
constexpr int64_t kMostPieceColumns = 512;
// The highway engine copies B anew for each piece. Its pieces are tall and narrow, so that more rows share a copy.
constexpr int64_t kMostTallPieceRows = 1024;
constexpr int64_t kMostTallPieceColumns = 256;
constexpr int64_t kMostWgradRows = 512;              // n, for amx and groups of up to kWgradRunRows rows
constexpr int64_t kMostDeepWgradRows = 256;          // n, of all others
constexpr int64_t kMostWgradColumns = 512;           // k
constexpr int64_t kWgradRunRows = 512;               // t that are multiplied at once
constexpr int64_t kPieceScratchBytes = 1680 * 1024;  // of any piece of any engine

/// C[M, column_begin .. column_end) = A[M, depth] · B[depth, columns] (+ bias).
///
/// Either `panels` holds B packed for the engine (forward: depth K, columns N; dgrad: depth N, columns K). Or
/// `rows` holds it unpacked: B[d][c] = rows[c·stride + d] when `transposed` (forward), else rows[d·stride + c]
/// (dgrad). 0 <= M <= kMostPieceRows, column_end - column_begin <= kMostPieceColumns (for highway
/// kMostTallPieceRows and kMostTallPieceColumns), column_begin a multiple of kPanelColumns, column_end <= columns.
/// The engines of bf16 want bf16 A and B; amx-bf16x3 panels that it packed, or rows.
struct ProductPiece {
  int64_t rows = 0;  // M
  int64_t depth = 0;
  int64_t columns = 0;
  int64_t column_begin = 0, column_end = 0;
  Rows a;  // its first row is the piece's first; stride given
  const std::byte* panels = nullptr;
  Rows b;  // when panels is null; stride given
  bool b_transposed = false;
  const float* bias = nullptr;  // [columns]
  OutRows c;                    // its first element is row 0, column 0; stride given
  std::byte* scratch = nullptr;
};

/// dw[n_begin .. n_end, k_begin .. k_end) (+)= Σ_t dy[t,n] x[t,k] over T rows, fp32, row-major; the sum is finished
/// before it is added. The ranges are at most kMostWgradRows (kMostDeepWgradRows) and kMostWgradColumns long and
/// begin at multiples of kPanelColumns.
struct WgradPiece {
  int64_t rows = 0;  // T
  int64_t n_begin = 0, n_end = 0, k_begin = 0, k_end = 0;
  Rows dy, x;  // the first row is the group's first; strides given
  float* dw = nullptr;
  int64_t dw_stride = 0;
  bool overwrite = false;
  bool past_cache = false;  // overwritten results are not to stay in the caches; a hint
};

/// Pieces for one thread, one after the other. An engine may ask for one while it works on the one before.
class WgradPieces {
 public:
  /// False when there are no more.
  virtual bool next(WgradPiece& piece) = 0;

 protected:
  ~WgradPieces() = default;
};

/// Scratch of each piece of each product of these sizes or smaller ones; a multiple of 64.
int64_t piece_scratch_bytes(Engine engine, const ProductSizes& sizes);

/// Bytes of one weight's panels for `depth` and `columns`.
int64_t panel_bytes(Engine engine, int64_t depth, int64_t columns);

/// For the amx engines: packs the rows n_begin .. n_end of a weight [n,k], fp32 or bf16, into both of its
/// blockings. n_begin is a multiple of kPanelColumns.
struct PackRowsPiece {
  int64_t n = 0, k = 0;
  int64_t n_begin = 0, n_end = 0;
  Rows w;                       // stride given
  std::byte* panels = nullptr;  // of the whole weight: forward's, then dgrad's
  bool past_cache = false;      // results are not to stay in the caches
};

/// For the other engines: packs the columns column_begin .. column_end (rules as in ProductPiece) of B, given as
/// rows of fp32 or bf16, into the panels of the whole B.
struct PackPiece {
  int64_t depth = 0, columns = 0;
  int64_t column_begin = 0, column_end = 0;
  Rows b;
  bool b_transposed = false;
  bool round_to_bf16 = false;  // for the fp32 engines: keep the values that a bf16 weight would have
  std::byte* panels = nullptr;
};

void run_piece(Engine engine, const ProductPiece& piece);
void run_pieces(Engine engine, WgradPieces& pieces, std::byte* scratch);
void run_piece(Engine engine, const PackPiece& piece);

// The functions of each engine. scratch_bytes is of a piece of a product of rows × columns over `depth`, or of
// smaller ones. A single scratch_bytes also serves a weight gradient's piece, of n × k over its rows. Engines
// without it take kPieceScratchBytes.
namespace amx {
// split: the engine amx-bf16x3.
int64_t panel_bytes(bool split, int64_t depth, int64_t columns);
void product(bool split, const ProductPiece& piece);
void wgrad(bool split, WgradPieces& pieces, std::byte* scratch);
void pack(bool split, const PackRowsPiece& piece);
}  // namespace amx

namespace avx512_engine {
/// See gemm_avx512_block-inl.h. floats: the engine avx512; widened: avx512-widen; pairs: avx512-bf16, below.
enum class Form : uint8_t { floats, pairs, widened };
int64_t scratch_bytes(Form form, int64_t rows, int64_t columns, int64_t depth);
int64_t panel_bytes(Form form, int64_t depth, int64_t columns);
void product(Form form, const ProductPiece& piece);
void wgrad(Form form, const WgradPiece& piece, std::byte* scratch);
void pack(Form form, const PackPiece& piece);
}  // namespace avx512_engine

namespace avx512_bf16_engine {
int64_t panel_bytes(int64_t depth, int64_t columns);
void product(const ProductPiece& piece);
void wgrad(const WgradPiece& piece, std::byte* scratch);
void pack(const PackPiece& piece);
}  // namespace avx512_bf16_engine

// Engines that read rows: of weights, too.
namespace neon {
void product(const ProductPiece& piece);  // of bf16 operands
void wgrad(const WgradPiece& piece, std::byte* scratch);
}  // namespace neon

namespace highway {
int64_t product_scratch_bytes(int64_t rows, int64_t columns, int64_t depth);
int64_t wgrad_scratch_bytes(int64_t n, int64_t k, int64_t rows);
void product(const ProductPiece& piece);
void wgrad(const WgradPiece& piece, std::byte* scratch);
}  // namespace highway

}  // namespace heddle::kernels::host
