// The amx engine: packing, and forward and dgrad pieces.
//
// Panels: B in panels of 32 columns; a panel is ceil(depth/32) step pairs (see gemm_amx_tiles.h), zeros beyond the
// edges, so that an odd depth or width costs nothing but the padding.
//
// Order of a piece: runs of at most kRunDepth of the depth; within a run, blocks of 32 rows; within these the
// panels. So 32 rows of A stay in the first-level cache while the run's panels stream from the second level; A is
// read in place (a row of k is what a tile row wants). With more than one run, sums wait in fp32 blocks, exactly.
#include "heddle/kernels/host/gemm_block.h"
#if defined(__x86_64__)
#include "heddle/kernels/host/gemm_amx_side_work.h"
#include "heddle/kernels/host/gemm_amx_tiles.h"

namespace heddle::kernels::host::amx {
namespace {

constexpr int64_t kOneRunDepth = 1024;  // not cut up to here: letting sums wait costs more than a larger A
constexpr int64_t kRunDepth = 640;
constexpr int64_t kBlock = kPanelColumns;  // rows and columns of a block
constexpr int64_t kBlockElements = kBlock * kBlock;

constexpr int64_t kSumsBytes = kMostPieceRows * kMostPieceColumns * 4;
constexpr int64_t kPanelsBytes = kOneRunDepth * kMostPieceColumns * 2;
constexpr int64_t kTailBytes = kMostPieceRows * kStep * 2;
constexpr int64_t kStagingBytes = 2 * kBlockElements * 4;
constexpr int64_t kLeftBytes = kBlock * kOneRunDepth * 2;
static_assert(kSumsBytes + kPanelsBytes + kTailBytes + kStagingBytes + kLeftBytes <= kPieceScratchBytes);

constexpr int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

/// Depth of a run: the runs are as equal as whole steps allow.
int64_t run_depth(int64_t depth) {
  const int64_t runs = depth <= kOneRunDepth ? 1 : ceil_div(depth, kRunDepth);
  return ceil_div(ceil_div(depth, runs), kStep) * kStep;
}

/// Whether 32 rows of A, `steps` lines of 64 bytes of each, fall on so few of the 64 sets of the first-level cache
/// that they push each other out: rows a multiple of 4 KiB apart all begin on one set, of 2 KiB on two.
bool rows_collide(int64_t row_bytes, int64_t steps) {
  if (row_bytes % 64 != 0) return false;
  int64_t apart = 64;  // sets between the first lines of rows
  while (row_bytes / 64 % apart != 0) apart /= 2;
  return apart > steps;
}

/// Full steps of up to 32 rows of A, as tiles one after the other.
HEDDLE_AMX void copy_left(const uint16_t* a, int64_t stride, int64_t rows, int64_t steps, uint16_t* out) {
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t step = 0; step < steps; ++step) {
      _mm512_store_si512(out + step * kPairElements + r * kStep, _mm512_loadu_si512(a + r * stride + step * kStep));
    }
  }
}

/// Step pairs of the depths depth_begin .. depth_end and the panel that begins at `column`, to `out`.
template <class T>
HEDDLE_AMX void pack_panel(const T* b, int64_t stride, bool transposed, int64_t depth_begin, int64_t depth_end,
                           int64_t column, int64_t columns, uint16_t* out) {
  const int64_t wide = smaller(columns - column, kBlock);
  for (int64_t d = depth_begin; d < depth_end; d += kStep, out += kPairElements) {
    const int64_t deep = smaller(depth_end - d, kStep);
    if (!transposed) {
      interleave_pairs(b + d * stride + column, stride, deep, wide, out);
      continue;
    }
    for (int64_t half = 0; half < 2; ++half) {
      __m512i rows[16];
      for (int64_t i = 0; i < kTile; ++i) {
        const int64_t c = half * kTile + i;
        rows[i] = c < wide ? load_bf16(b + (column + c) * stride + d, deep) : _mm512_setzero_si512();
      }
      transpose_dwords(rows);
      for (int64_t i = 0; i < kTile; ++i) _mm512_store_si512(out + half * kTileElements + i * 32, rows[i]);
    }
  }
}

HEDDLE_AMX void pack_panel(const Rows& b, bool transposed, int64_t depth_begin, int64_t depth_end, int64_t column,
                           int64_t columns, uint16_t* out) {
  if (b.dtype == Dtype::bf16) {
    pack_panel(static_cast<const uint16_t*>(b.data), b.stride, transposed, depth_begin, depth_end, column, columns,
               out);
  } else {
    pack_panel(static_cast<const float*>(b.data), b.stride, transposed, depth_begin, depth_end, column, columns,
               out);
  }
}

HEDDLE_AMX void run_product(const ProductPiece& piece) {
  float* const sums = reinterpret_cast<float*>(piece.scratch);
  auto* const own_panels = reinterpret_cast<uint16_t*>(piece.scratch + kSumsBytes);
  auto* const tails = reinterpret_cast<uint16_t*>(piece.scratch + kSumsBytes + kPanelsBytes);
  float* const staging = reinterpret_cast<float*>(piece.scratch + kSumsBytes + kPanelsBytes + kTailBytes);

  auto* const left_copy =
      reinterpret_cast<uint16_t*>(piece.scratch + kSumsBytes + kPanelsBytes + kTailBytes + kStagingBytes);

  const auto* a = static_cast<const uint16_t*>(piece.a.data);
  const int64_t a_stride = piece.a.stride;
  const int64_t tail_depth = piece.depth % kStep;
  const int64_t full_depth = piece.depth - tail_depth;
  if (tail_depth) {
    for (int64_t r = 0; r < piece.rows; ++r) {
      _mm512_store_si512(tails + r * kStep, load_bf16(a + r * a_stride + full_depth, tail_depth));
    }
  }

  const int64_t run = run_depth(piece.depth);
  const int64_t panel_elements = ceil_div(piece.depth, kStep) * kPairElements;
  const int64_t first_panel = piece.column_begin / kBlock;
  const int64_t panels = ceil_div(piece.column_end, kBlock) - first_panel;
  const bool one_run = run >= piece.depth;
  int64_t configured = 0;
  WriteAndFetch work;
  PendingRows& pending = work.pending;
  pending.narrow = piece.c.dtype == Dtype::bf16;
  int64_t blocks_done = 0;
  const int64_t c_size = size_of(piece.c.dtype), c_stride = piece.c.stride * c_size;

  for (int64_t depth = 0; depth < piece.depth; depth += run) {
    const int64_t depth_end = smaller(depth + run, piece.depth);
    const bool last = depth_end == piece.depth;
    const int64_t steps = (smaller(depth_end, full_depth) - depth) / kStep;
    const uint16_t* b;
    int64_t b_stride;  // elements from one panel to the next
    if (piece.panels) {
      b = reinterpret_cast<const uint16_t*>(piece.panels) + first_panel * panel_elements +
          depth / kStep * kPairElements;
      b_stride = panel_elements;
    } else {
      b = own_panels;
      b_stride = run / kStep * kPairElements;
      for (int64_t p = 0; p < panels; ++p) {
        pack_panel(piece.b, piece.b_transposed, depth, depth_end, (first_panel + p) * kBlock, piece.column_end,
                   own_panels + p * b_stride);
      }
    }
    for (int64_t row = 0; row < piece.rows; row += kBlock) {
      const int64_t tall = smaller(piece.rows - row, kBlock);
      if (tall != configured) configure_tiles(configured = tall);
      LeftOperand left;
      left.upper = a + row * a_stride + depth;
      left.lower = left.upper + kTile * a_stride;
      left.row_stride = a_stride * 2;
      left.step_stride = kStep;
      left.tail = last && tail_depth ? tails + row * kStep : nullptr;
      if (panels > 2 && rows_collide(a_stride * 2, steps)) {
        copy_left(a + row * a_stride + depth, a_stride, tall, steps, left_copy);
        left.upper = left_copy;
        left.lower = left_copy + kTileElements;
        left.row_stride = 64;
        left.step_stride = kPairElements;
      }
      const int64_t next_rows = smaller(piece.rows - row - kBlock, kBlock);
      if (next_rows > 0) {
        work.ahead.set(a + (row + kBlock) * a_stride + depth, a_stride * 2, next_rows, steps * 64, panels, steps);
      }
      for (int64_t p = 0; p < panels; ++p) {
        const int64_t column = (first_panel + p) * kBlock;
        const int64_t wide = smaller(piece.column_end - column, kBlock);
        char* const to = static_cast<char*>(piece.c.data) + row * c_stride + column * c_size;
        if (last) work.claim = {to, c_stride, tall, !pending.narrow, 0};
        if (one_run && !pending.narrow && !piece.bias && wide % kTile == 0) {
          multiply_edge_block(tall, wide, left, steps, b + p * b_stride, reinterpret_cast<float*>(to), c_stride,
                              false, work);
          pending.finish();
          continue;
        }
        float* const c = one_run ? staging + blocks_done++ % 2 * kBlockElements
                                 : sums + (row / kBlock * panels + p) * kBlockElements;
        if (!one_run)
          work.next_sums = {reinterpret_cast<const char*>(c + kBlockElements), kBlock * 4, kBlock, true, 0};
        multiply_edge_block(tall, wide, left, steps, b + p * b_stride, c, kBlock * 4, depth != 0, work);
        pending.finish();
        if (last) {
          pending.set(c, tall, wide, to, c_stride);
          pending.bias = piece.bias ? piece.bias + column : nullptr;
        }
      }
    }
  }
  pending.finish();
  _tile_release();
}

HEDDLE_AMX void run_pack(const PackPiece& piece) {
  const int64_t panel_elements = ceil_div(piece.depth, kStep) * kPairElements;
  for (int64_t column = piece.column_begin; column < piece.column_end; column += kBlock) {
    pack_panel(piece.b, piece.b_transposed, 0, piece.depth, column, piece.column_end,
               reinterpret_cast<uint16_t*>(piece.panels) + column / kBlock * panel_elements);
  }
}

}  // namespace

int64_t panel_bytes(int64_t depth, int64_t columns) {
  return ceil_div(depth, kStep) * ceil_div(columns, kBlock) * kPairElements * 2;
}

HEDDLE_AMX_TARGET void product(const ProductPiece& piece) { run_product(piece); }
HEDDLE_AMX_TARGET void pack(const PackPiece& piece) { run_pack(piece); }

}  // namespace heddle::kernels::host::amx
#else
namespace heddle::kernels::host::amx {
int64_t panel_bytes(int64_t, int64_t) { internal_error("amx on another processor"); }
void product(const ProductPiece&) { internal_error("amx on another processor"); }
void pack(const PackPiece&) { internal_error("amx on another processor"); }
}  // namespace heddle::kernels::host::amx
#endif
