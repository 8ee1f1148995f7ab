// The amx engines: forward and dgrad pieces.
//
// Order of a piece: runs of at most kRunDepth of the depth; within a run, blocks of 32 rows; within these the
// panels. So 32 rows of A stay in the first-level cache while the run's panels stream from the second level; A is
// read in place (a row of k is what a tile row wants). With more than one run, sums wait in fp32 blocks, exactly. A
// is split a block of rows ahead, while the tile unit multiplies. It is too large for the first-level cache then,
// but a step multiplies six times as long as it would for bf16, and needs six times as much.
#include "heddle/kernels/host/gemm/gemm_block.h"
#if defined(__x86_64__)
#include <type_traits>

#include "heddle/kernels/host/gemm/gemm_amx_panels.h"
#include "heddle/kernels/host/gemm/gemm_amx_side_work.h"

namespace heddle::kernels::host::amx {
namespace {

constexpr int64_t kOneRunDepth = 1024;  // not cut up to here: letting sums wait costs more than a larger A
constexpr int64_t kRunDepth = 640;
constexpr int64_t kSplitRunDepth = 256;  // of split operands, three times as large: at once, or sums wait
constexpr int64_t kBlockElements = kBlock * kBlock;

/// The scratch of a piece, in bytes.
template <Numbers kNumbers>
struct ProductScratch {
  static constexpr bool kSplit = kNumbers == Numbers::split_fp32;
  static constexpr int64_t kSums = kMostPieceRows * kMostPieceColumns * 4;
  static constexpr int64_t kPanels = (kSplit ? 3 * kSplitRunDepth : kOneRunDepth) * kMostPieceColumns * 2;
  static constexpr int64_t kTail = kSplit ? 0 : kMostPieceRows * kStep * 2;
  static constexpr int64_t kStaging = 2 * kBlockElements * 4;
  static constexpr int64_t kLeft = (kSplit ? 2 * 3 * kSplitRunDepth : kOneRunDepth) * kBlock * 2;
  static_assert(kSums + kPanels + kTail + kStaging + kLeft <= kPieceScratchBytes);

  float* sums;
  uint16_t* panels;
  uint16_t* tails;
  float* staging;
  uint16_t* left;
  explicit ProductScratch(std::byte* scratch)
      : sums(reinterpret_cast<float*>(scratch)),
        panels(reinterpret_cast<uint16_t*>(scratch + kSums)),
        tails(reinterpret_cast<uint16_t*>(scratch + kSums + kPanels)),
        staging(reinterpret_cast<float*>(scratch + kSums + kPanels + kTail)),
        left(reinterpret_cast<uint16_t*>(scratch + kSums + kPanels + kTail + kStaging)) {}
};

/// Depth of a run: the runs are as equal as whole steps allow.
int64_t run_depth(int64_t depth, int64_t most_in_one, int64_t most) {
  const int64_t runs = depth <= most_in_one ? 1 : ceil_div(depth, most);
  return ceil_div(ceil_div(depth, runs), kStep) * kStep;
}

/// True if 32 rows of A, `steps` lines of 64 bytes of each, collide in the 64 sets of the first-level cache: they
/// push each other out. Rows a multiple of 4 KiB apart all begin on one set, of 2 KiB on two.
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

template <Numbers kNumbers>
HEDDLE_AMX void run_product(const ProductPiece& piece) {
  constexpr bool kSplit = kNumbers == Numbers::split_fp32;
  constexpr int64_t kStepElements = parts_of(kNumbers) * kPairElements;
  const ProductScratch<kNumbers> own(piece.scratch);
  const int64_t a_stride = piece.a.stride;
  const int64_t tail_depth = kSplit ? 0 : piece.depth % kStep;  // split operands are padded in the same go
  const int64_t full_depth = kSplit ? ceil_div(piece.depth, kStep) * kStep : piece.depth - tail_depth;
  const auto* const a = static_cast<const uint16_t*>(piece.a.data);  // unless it is to be split
  if (tail_depth) {
    for (int64_t r = 0; r < piece.rows; ++r) {
      _mm512_store_si512(own.tails + r * kStep, load_bf16(a + r * a_stride + full_depth, tail_depth));
    }
  }

  const int64_t run = kSplit ? run_depth(piece.depth, kSplitRunDepth, kSplitRunDepth)
                             : run_depth(piece.depth, kOneRunDepth, kRunDepth);
  const int64_t panel_elements = ceil_div(piece.depth, kStep) * kStepElements;
  const int64_t first_panel = piece.column_begin / kBlock;
  const int64_t panels = ceil_div(piece.column_end, kBlock) - first_panel;
  const bool one_run = run >= piece.depth;
  int64_t configured = 0;
  WriteAndFetch<std::conditional_t<kSplit, SplitAhead, FetchAhead>> work;
  PendingRows& pending = work.pending;
  pending.narrow = piece.c.dtype == Dtype::bf16;
  int64_t blocks_done = 0;
  const int64_t c_size = size_of(piece.c.dtype), c_stride = piece.c.stride * c_size;

  for (int64_t depth = 0; depth < piece.depth; depth += run) {
    const int64_t depth_end = smaller(depth + run, piece.depth);
    const bool last = depth_end == piece.depth;
    const int64_t steps = (smaller(kSplit ? depth + run : depth_end, full_depth) - depth) / kStep;
    const uint16_t* b;
    int64_t b_stride;  // elements from one panel to the next
    if (piece.panels) {
      b = reinterpret_cast<const uint16_t*>(piece.panels) + first_panel * panel_elements +
          depth / kStep * kStepElements;
      b_stride = panel_elements;
    } else {
      b = own.panels;
      b_stride = run / kStep * kStepElements;
      for (int64_t p = 0; p < panels; ++p) {
        pack_panel<kNumbers>(piece.b, piece.b_transposed, depth, depth_end, (first_panel + p) * kBlock,
                             piece.column_end, own.panels + p * b_stride);
      }
    }
    if constexpr (kSplit) {
      work.ahead.set(piece.a, 0, smaller(piece.rows, kBlock), depth, depth_end, own.left, 0);
      work.ahead.finish();
    }
    for (int64_t row = 0; row < piece.rows; row += kBlock) {
      const int64_t tall = smaller(piece.rows - row, kBlock);
      if (tall != configured) configure_tiles(configured = tall);
      const int64_t next_rows = smaller(piece.rows - row - kBlock, kBlock);
      LeftOperand left;
      if constexpr (kSplit) {
        const int64_t which = row / kBlock % 2;
        constexpr int64_t kLeftElements = 3 * kBlock * kSplitRunDepth;
        left.upper = own.left + which * kLeftElements;
        left.lower = left.upper + kTileElements;
        left.row_stride = 64;
        left.step_stride = kSplitElements;
        if (next_rows > 0) {
          work.ahead.set(piece.a, row + kBlock, next_rows, depth, depth_end, own.left + (1 - which) * kLeftElements,
                         ceil_div(next_rows, panels));
        }
      } else {
        left.upper = a + row * a_stride + depth;
        left.lower = left.upper + kTile * a_stride;
        left.row_stride = a_stride * 2;
        left.step_stride = kStep;
        left.tail = last && tail_depth ? own.tails + row * kStep : nullptr;
        if (panels > 2 && rows_collide(a_stride * 2, steps)) {
          copy_left(a + row * a_stride + depth, a_stride, tall, steps, own.left);
          left.upper = own.left;
          left.lower = own.left + kTileElements;
          left.row_stride = 64;
          left.step_stride = kPairElements;
        }
        if (next_rows > 0) {
          work.ahead.set(a + (row + kBlock) * a_stride + depth, a_stride * 2, next_rows, steps * 64, panels, steps);
        }
      }
      for (int64_t p = 0; p < panels; ++p) {
        const int64_t column = (first_panel + p) * kBlock;
        const int64_t wide = smaller(piece.column_end - column, kBlock);
        char* const to = static_cast<char*>(piece.c.data) + row * c_stride + column * c_size;
        if (last) work.claim = {to, c_stride, tall, !pending.narrow, 0};
        if (one_run && !pending.narrow && !piece.bias && wide % kTile == 0) {
          multiply_edge_block<kNumbers>(tall, wide, left, steps, b + p * b_stride, reinterpret_cast<float*>(to),
                                        c_stride, false, work);
          pending.finish();
          continue;
        }
        float* const c = one_run ? own.staging + blocks_done++ % 2 * kBlockElements
                                 : own.sums + (row / kBlock * panels + p) * kBlockElements;
        if (!one_run)
          work.next_sums = {reinterpret_cast<const char*>(c + kBlockElements), kBlock * 4, kBlock, true, 0};
        multiply_edge_block<kNumbers>(tall, wide, left, steps, b + p * b_stride, c, kBlock * 4, depth != 0, work);
        pending.finish();
        if (last) {
          pending.set(c, tall, wide, to, c_stride);
          pending.bias = piece.bias ? piece.bias + column : nullptr;
        }
      }
      if constexpr (kSplit) work.ahead.finish();
    }
  }
  pending.finish();
  _tile_release();
}

}  // namespace

HEDDLE_AMX_TARGET void product(bool split, const ProductPiece& piece) {
  split ? run_product<Numbers::split_fp32>(piece) : run_product<Numbers::bf16>(piece);
}

}  // namespace heddle::kernels::host::amx
#else
namespace heddle::kernels::host::amx {
void product(bool, const ProductPiece&) { internal_error("amx on another processor"); }
}  // namespace heddle::kernels::host::amx
#endif
