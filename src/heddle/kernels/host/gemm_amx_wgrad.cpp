// The amx engine: weight-gradient pieces, dw[n, k] (+)= Σ_t dy[t, n] x[t, k].
//
// Both operands lie the wrong way round for tiles, whose products run along t: x has its pairs of rows interleaved
// (the form of B) and dy is interleaved and then transposed (the form of A). A run of kRunRows rows of both is
// brought into that form in scratch that stays in the second-level cache, then multiplied, the sums going straight
// to and from dw.
#include "heddle/kernels/host/gemm_block.h"
#if defined(__x86_64__)
#include "heddle/kernels/host/gemm_amx_side_work.h"
#include "heddle/kernels/host/gemm_amx_tiles.h"

namespace heddle::kernels::host::amx {
namespace {

constexpr int64_t kRunRows = 512;
constexpr int64_t kBlock = kPanelColumns;
constexpr int64_t kBlockElements = kBlock * kBlock;
constexpr int64_t kLeftBytes = kRunRows * kMostWgradRows * 2;
constexpr int64_t kRightBytes = kRunRows * kMostWgradColumns * 2;
constexpr int64_t kSumsBytes = kMostWgradRows * kMostWgradColumns * 4;
constexpr int64_t kStagingBytes = 2 * kBlockElements * 4;
static_assert(kLeftBytes + kRightBytes + kSumsBytes + kStagingBytes <= kPieceScratchBytes);

constexpr int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

/// 32 rows × 32 columns of dy to two tiles of A: [column][row].
HEDDLE_AMX void transpose_step(const uint16_t* dy, int64_t stride, int64_t rows, int64_t columns, uint16_t* out) {
  interleave_pairs(dy, stride, rows, columns, out);
  for (int64_t half = 0; half < 2; ++half) {
    uint16_t* tile = out + half * kTileElements;
    __m512i pairs[16];
    for (int64_t i = 0; i < kTile; ++i) pairs[i] = _mm512_load_si512(tile + i * 32);
    transpose_dwords(pairs);
    for (int64_t i = 0; i < kTile; ++i) _mm512_store_si512(tile + i * 32, pairs[i]);
  }
}

HEDDLE_AMX void run_wgrad(const WgradPiece& piece) {
  auto* const left = reinterpret_cast<uint16_t*>(piece.scratch);
  auto* const right = reinterpret_cast<uint16_t*>(piece.scratch + kLeftBytes);
  float* const sums = reinterpret_cast<float*>(piece.scratch + kLeftBytes + kRightBytes);
  float* const staging = reinterpret_cast<float*>(piece.scratch + kLeftBytes + kRightBytes + kSumsBytes);
  const auto* dy = static_cast<const uint16_t*>(piece.dy.data);
  const auto* x = static_cast<const uint16_t*>(piece.x.data);
  int64_t configured = 0;
  int64_t blocks_done = 0;
  WriteAndFetch work;
  PendingRows& pending = work.pending;
  pending.add = !piece.overwrite;
  const int64_t panels = (piece.k_end - piece.k_begin + kBlock - 1) / kBlock;
  if (piece.rows == 0 && piece.overwrite) {
    for (int64_t n = piece.n_begin; n < piece.n_end; ++n) {
      for (int64_t k = piece.k_begin; k < piece.k_end; ++k) piece.dw[n * piece.dw_stride + k] = 0;
    }
  }
  for (int64_t begin = 0; begin < piece.rows; begin += kRunRows) {
    const int64_t deep = smaller(piece.rows - begin, kRunRows);
    const int64_t steps = (deep + kStep - 1) / kStep;
    const int64_t panel_elements = steps * kPairElements;
    for (int64_t step = 0; step < steps; ++step) {
      const int64_t t = begin + step * kStep, rows = smaller(piece.rows - t, kStep);
      uint16_t* to = left + step * kPairElements;
      for (int64_t n = piece.n_begin; n < piece.n_end; n += kBlock, to += panel_elements) {
        transpose_step(dy + t * piece.dy.stride + n, piece.dy.stride, rows, smaller(piece.n_end - n, kBlock), to);
      }
      to = right + step * kPairElements;
      for (int64_t k = piece.k_begin; k < piece.k_end; k += kBlock, to += panel_elements) {
        interleave_pairs(x + t * piece.x.stride + k, piece.x.stride, rows, smaller(piece.k_end - k, kBlock), to);
      }
    }
    const bool last = begin + deep == piece.rows, one_run = deep == piece.rows;
    const uint16_t* a_panel = left;
    float* block = sums;
    for (int64_t n = piece.n_begin; n < piece.n_end; n += kBlock, a_panel += panel_elements) {
      const int64_t tall = smaller(piece.n_end - n, kBlock);
      if (tall != configured) configure_tiles(configured = tall);
      LeftOperand a;
      a.upper = a_panel;
      a.lower = a_panel + kTileElements;
      a.row_stride = 64;
      a.step_stride = kPairElements;
      for (int64_t p = 0; p < panels; ++p, block += kBlockElements) {
        const int64_t k = piece.k_begin + p * kBlock, wide = smaller(piece.k_end - k, kBlock);
        float* const to = piece.dw + n * piece.dw_stride + k;
        if (last) work.claim = {reinterpret_cast<const char*>(to), piece.dw_stride * 4, tall, true, 0};
        float* const c = one_run ? staging + blocks_done++ % 2 * kBlockElements : block;
        if (!one_run)
          work.next_sums = {reinterpret_cast<const char*>(c + kBlockElements), kBlock * 4, kBlock, true, 0};
        multiply_edge_block(tall, wide, a, steps, right + p * panel_elements, c, kBlock * 4, begin != 0, work);
        pending.finish();
        if (last) pending.set(c, tall, wide, to, piece.dw_stride * 4);
      }
    }
  }
  pending.finish();
  _tile_release();
}

}  // namespace

HEDDLE_AMX_TARGET void wgrad(const WgradPiece& piece) { run_wgrad(piece); }

}  // namespace heddle::kernels::host::amx
#else
namespace heddle::kernels::host::amx {
void wgrad(const WgradPiece&) { internal_error("amx on another processor"); }
}  // namespace heddle::kernels::host::amx
#endif
