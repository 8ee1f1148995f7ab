// The amx engine: weight-gradient pieces, dw[n, k] (+)= Σ_t dy[t, n] x[t, k].
//
// Both operands lie the wrong way round for tiles, whose products run along t: x has its pairs of rows interleaved
// (the form of B) and dy is interleaved and then transposed (the form of A). A run of kRunRows rows of both is
// brought into that form in scratch that stays in the second-level cache, then multiplied, the sums going straight
// to and from dw.
#include "heddle/kernels/host/gemm_block.h"
#if defined(__x86_64__)
#include "heddle/kernels/host/gemm_amx_tiles.h"

namespace heddle::kernels::host::amx {
namespace {

constexpr int64_t kRunRows = 512;
constexpr int64_t kBlock = kPanelColumns;
constexpr int64_t kOperandBytes = kRunRows * kMostPieceColumns * 2;
constexpr int64_t kStagingBytes = kBlock * kBlock * 4;
static_assert(2 * kOperandBytes + kStagingBytes <= kPieceScratchBytes);

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

HEDDLE_AMX void store_edge_block(const float* staging, int64_t rows, int64_t columns, float* dw, int64_t stride) {
  const __mmask16 left = first_lanes_16(columns), right = first_lanes_16(columns - 16);
  for (int64_t r = 0; r < rows; ++r) {
    _mm512_mask_storeu_ps(dw + r * stride, left, _mm512_load_ps(staging + r * kBlock));
    _mm512_mask_storeu_ps(dw + r * stride + 16, right, _mm512_load_ps(staging + r * kBlock + 16));
  }
}

HEDDLE_AMX void load_edge_block(float* staging, int64_t rows, int64_t columns, const float* dw, int64_t stride) {
  const __mmask16 left = first_lanes_16(columns), right = first_lanes_16(columns - 16);
  for (int64_t r = 0; r < rows; ++r) {
    _mm512_store_ps(staging + r * kBlock, _mm512_maskz_loadu_ps(left, dw + r * stride));
    _mm512_store_ps(staging + r * kBlock + 16, _mm512_maskz_loadu_ps(right, dw + r * stride + 16));
  }
}

HEDDLE_AMX void run_wgrad(const WgradPiece& piece) {
  auto* const left = reinterpret_cast<uint16_t*>(piece.scratch);
  auto* const right = reinterpret_cast<uint16_t*>(piece.scratch + kOperandBytes);
  float* const staging = reinterpret_cast<float*>(piece.scratch + 2 * kOperandBytes);
  const auto* dy = static_cast<const uint16_t*>(piece.dy.data);
  const auto* x = static_cast<const uint16_t*>(piece.x.data);
  int64_t configured = 0;
  NoSideWork nothing;
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
    const bool accumulate = begin != 0 || !piece.overwrite;
    const uint16_t* a_panel = left;
    for (int64_t n = piece.n_begin; n < piece.n_end; n += kBlock, a_panel += panel_elements) {
      const int64_t tall = smaller(piece.n_end - n, kBlock);
      if (tall != configured) configure_tiles(configured = tall);
      LeftOperand a;
      a.upper = a_panel;
      a.lower = a_panel + kTileElements;
      a.row_stride = 64;
      a.step_stride = kPairElements;
      const uint16_t* b = right;
      for (int64_t k = piece.k_begin; k < piece.k_end; k += kBlock, b += panel_elements) {
        const int64_t wide = smaller(piece.k_end - k, kBlock);
        float* c = piece.dw + n * piece.dw_stride + k;
        if (wide % kTile == 0) {
          FetchBlock next;
          if (accumulate && k + kBlock < piece.k_end) {
            next.row = reinterpret_cast<const char*>(c + kBlock);
            next.stride = piece.dw_stride * 4;
            next.left = tall;
          }
          multiply_edge_block(tall, wide, a, steps, b, c, piece.dw_stride * 4, accumulate, next);
          continue;
        }
        if (accumulate) load_edge_block(staging, tall, wide, c, piece.dw_stride);
        multiply_edge_block(tall, wide, a, steps, b, staging, kBlock * 4, accumulate, nothing);
        store_edge_block(staging, tall, wide, c, piece.dw_stride);
      }
    }
  }
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
