// The amx engines: weight-gradient pieces, dw[n, k] (+)= Σ_t dy[t, n] x[t, k].
//
// Both operands lie the wrong way round for tiles, whose products run along t. So x has its pairs of rows
// interleaved (the form of B) and dy is transposed (the form of A). See gemm_amx_wgrad_pack.h, and gemm_amx_split.h
// for fp32.
//
// Order of a piece: runs of at most kWgradRunRows rows (kSplitRunRows of fp32), each packed and then multiplied;
// within a run, blocks of 32 n; within these, blocks of 32 k. So 32 n of dy stay in the first-level cache while the
// run's x streams from the second. The next piece's first rows are fetched meanwhile. Packing as side work of the
// products loses: its stores to the second-level cache, 100 cycles for 2 KiB, stall the operands' loads. Sums wait
// in blocks from run to run, exactly, so that dw is touched once. Where all of it is overwritten and too large for
// the caches, it is written past them. An ordinary store fetches first the line that it overwrites.
#include "heddle/kernels/host/gemm/gemm_block.h"
#if defined(__x86_64__)
#include "heddle/kernels/host/gemm/gemm_amx_side_work.h"
#include "heddle/kernels/host/gemm/gemm_amx_split.h"
#include "heddle/kernels/host/gemm/gemm_amx_wgrad_pack.h"

namespace heddle::kernels::host::amx {
namespace {

constexpr int64_t kBlock = kPanelColumns;
constexpr int64_t kBlockElements = kBlock * kBlock;
constexpr int64_t kSplitRunRows = 256;

/// The scratch of a thread, in bytes.
template <Numbers kNumbers>
struct WgradScratch {
  static constexpr bool kSplit = kNumbers == Numbers::split_fp32;
  static constexpr int64_t kLeft =
      kSplit ? 3 * kSplitRunRows * kMostDeepWgradRows * 2 : kWgradRunRows * kMostWgradRows * 2;
  static constexpr int64_t kRight = (kSplit ? 3 * kSplitRunRows : kWgradRunRows) * kMostWgradColumns * 2;
  static constexpr int64_t kSums = kMostDeepWgradRows * kMostWgradColumns * 4;
  static constexpr int64_t kStaging = 2 * kBlockElements * 4;
  static_assert(kLeft + kRight + kSums + kStaging <= kPieceScratchBytes);

  uint16_t* left;
  uint16_t* right;
  float* sums;
  float* staging;
  explicit WgradScratch(std::byte* scratch)
      : left(reinterpret_cast<uint16_t*>(scratch)),
        right(reinterpret_cast<uint16_t*>(scratch + kLeft)),
        sums(reinterpret_cast<float*>(scratch + kLeft + kRight)),
        staging(reinterpret_cast<float*>(scratch + kLeft + kRight + kSums)) {}
};

constexpr int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

/// Rows of a run: the runs are as equal as whole steps allow.
int64_t run_rows(int64_t rows, int64_t most) {
  return ceil_div(ceil_div(rows, ceil_div(rows, most)), kStep) * kStep;
}

/// A finished block of sums on its way to dw, some rows a step.
struct PendingSums {
  const float* sums = nullptr;
  int64_t left = 0;  // rows
  int64_t each_step = 0;
  float* to = nullptr;
  int64_t stride = 0;
  bool add = false;
  bool past_cache = false;  // whole lines only
  bool in_order = false;    // columns of sums are in order
  __mmask16 low_lanes = 0, high_lanes = 0;

  HEDDLE_AMX_TARGET void set(const float* block, int64_t rows, int64_t columns, float* first) {
    sums = block;
    left = rows;
    to = first;
    low_lanes = first_lanes_16(columns);
    high_lanes = first_lanes_16(columns - kTile);
  }
  HEDDLE_AMX_TARGET void begin(int64_t steps) { each_step = steps ? ceil_div(left, steps) : 0; }
  HEDDLE_AMX_TARGET void step() {
    for (int64_t i = 0; i < each_step && left > 0; ++i) write_row();
  }
  HEDDLE_AMX_TARGET void finish() {
    while (left > 0) write_row();
  }
  HEDDLE_AMX_TARGET void write_row() {
    __m512 low = _mm512_load_ps(sums), high = _mm512_load_ps(sums + kTile);
    if (!in_order) order_columns(low, high);
    if (add) {
      low = _mm512_add_ps(_mm512_maskz_loadu_ps(low_lanes, to), low);
      high = _mm512_add_ps(_mm512_maskz_loadu_ps(high_lanes, to + kTile), high);
    }
    if (past_cache) {
      _mm512_stream_ps(to, low);
      _mm512_stream_ps(to + kTile, high);
    } else {
      _mm512_mask_storeu_ps(to, low_lanes, low);
      _mm512_mask_storeu_ps(to + kTile, high_lanes, high);
    }
    sums += kBlock;
    to += stride;
    --left;
  }
};

struct SideWork {
  PendingSums pending;
  ClaimRows claim;             // the place of this block's results
  ClaimRows next_sums;         // of the next block, when sums wait from run to run
  FetchAhead next_dy, next_x;  // of the next piece

  HEDDLE_AMX_TARGET void begin(int64_t steps) {
    pending.begin(steps);
    claim.begin(steps);
    next_sums.begin(steps);
  }
  HEDDLE_AMX_TARGET void step() {
    pending.step();
    claim.step();
    next_sums.step();
    next_dy.step();
    next_x.step();
  }
};

HEDDLE_AMX void overwrite_with_zeros(const WgradPiece& piece) {
  for (int64_t n = piece.n_begin; n < piece.n_end; ++n) {
    for (int64_t k = piece.k_begin; k < piece.k_end; ++k) piece.dw[n * piece.dw_stride + k] = 0;
  }
}

/// A run of a piece.
struct Run {
  WgradPiece piece;
  int64_t begin = 0, rows = 0;
  bool first() const { return begin == 0; }
  bool last() const { return begin + rows == piece.rows; }
  int64_t n() const { return piece.n_end - piece.n_begin; }
  int64_t k() const { return piece.k_end - piece.k_begin; }
  int64_t blocks() const { return ceil_div(n(), kBlock); }
  int64_t panels() const { return ceil_div(k(), kBlock); }
  int64_t steps() const { return ceil_div(rows, kStep); }
  const void* dy() const { return at(piece.dy, piece.n_begin); }
  const void* x() const { return at(piece.x, piece.k_begin); }

 private:
  const void* at(const Rows& matrix, int64_t column) const {
    return static_cast<const std::byte*>(matrix.data) + (begin * matrix.stride + column) * size_of(matrix.dtype);
  }
};

/// Step pairs of one step of t: A's or B's form of the unit that is `t` rows and `column` columns into the run.
template <Numbers kNumbers, bool kLeft>
HEDDLE_AMX void pack(const Run& run, int64_t t, int64_t column, uint16_t* to) {
  const Rows& matrix = kLeft ? run.piece.dy : run.piece.x;
  const int64_t rows = run.rows - t, columns = (kLeft ? run.n() : run.k()) - column;
  if constexpr (kNumbers == Numbers::split_fp32) {
    split_unit<kLeft ? UnitForm::turned_rows_are_depth : UnitForm::down>(
        matrix, run.begin + t, (kLeft ? run.piece.n_begin : run.piece.k_begin) + column, rows, columns, to);
  } else {
    const auto* from = static_cast<const uint16_t*>(kLeft ? run.dy() : run.x());
    pack_unit<kLeft>(from + t * matrix.stride + column, matrix.stride, rows, columns, to);
  }
}

/// Goes on to the next run; false after the last. Pieces without rows are done on the way.
HEDDLE_AMX bool advance(Run& run, WgradPieces& pieces, int64_t most_rows) {
  if (run.rows && !run.last()) {
    run.begin += run.rows;
  } else {
    do {
      if (!pieces.next(run.piece)) return false;
      if (run.piece.rows == 0 && run.piece.overwrite) overwrite_with_zeros(run.piece);
    } while (run.piece.rows == 0);
    run.begin = 0;
  }
  run.rows = smaller(run.piece.rows - run.begin, run_rows(run.piece.rows, most_rows));
  return true;
}

template <Numbers kNumbers>
HEDDLE_AMX void run_wgrad(WgradPieces& pieces, std::byte* scratch) {
  constexpr int64_t kMostRows = kNumbers == Numbers::split_fp32 ? kSplitRunRows : kWgradRunRows;
  constexpr int64_t kStepElements = parts_of(kNumbers) * kPairElements;
  const WgradScratch<kNumbers> own(scratch);
  SideWork work;
  work.pending.in_order = kNumbers == Numbers::split_fp32;
  Run run;
  if (!advance(run, pieces, kMostRows)) return;
  configure_tiles(kBlock);
  int64_t blocks_done = 0;
  for (bool more = true; more;) {
    const WgradPiece piece = run.piece;
    const int64_t steps = run.steps(), blocks = run.blocks(), panels = run.panels();
    const int64_t panel_elements = steps * kStepElements;
    const bool first = run.first(), last = run.last();
    for (int64_t step = 0; step < steps; ++step) {
      uint16_t* to = own.left + step * kStepElements;
      for (int64_t n = 0; n < run.n(); n += kBlock, to += panel_elements) {
        pack<kNumbers, true>(run, step * kStep, n, to);
      }
      to = own.right + step * kStepElements;
      for (int64_t k = 0; k < run.k(); k += kBlock, to += panel_elements) {
        pack<kNumbers, false>(run, step * kStep, k, to);
      }
    }
    Run next = run;
    more = advance(next, pieces, kMostRows);
    if (more && next.first()) {
      const int64_t products = blocks * panels;
      const int64_t dy_size = size_of(next.piece.dy.dtype), x_size = size_of(next.piece.x.dtype);
      work.next_dy.set(next.dy(), next.piece.dy.stride * dy_size, next.rows, next.n() * dy_size, products, steps);
      work.next_x.set(next.x(), next.piece.x.stride * x_size, next.rows, next.k() * x_size, products, steps);
    }
    for (int64_t i = 0; i < blocks; ++i) {
      const int64_t n = i * kBlock, tall = smaller(run.n() - n, kBlock);
      LeftOperand a;
      a.upper = own.left + i * panel_elements;
      a.lower = a.upper + kTileElements;
      a.row_stride = 64;
      a.step_stride = kStepElements;
      const uint16_t* b = own.right;
      for (int64_t p = 0; p < panels; ++p, b += panel_elements) {
        const int64_t k = p * kBlock, wide = smaller(run.k() - k, kBlock);
        float* const to = piece.dw + (piece.n_begin + n) * piece.dw_stride + piece.k_begin + k;
        const bool past_cache =
            piece.past_cache && wide == kBlock &&
            (reinterpret_cast<uintptr_t>(to) | static_cast<uint64_t>(piece.dw_stride * 4)) % 64 == 0;
        if (last && !past_cache)
          work.claim = {reinterpret_cast<const char*>(to), piece.dw_stride * 4, tall, true, 0};
        float* const c = first && last ? own.staging + blocks_done++ % 2 * kBlockElements
                                       : own.sums + (i * panels + p) * kBlockElements;
        if (!first || !last) {
          work.next_sums = {reinterpret_cast<const char*>(c + kBlockElements), kBlock * 4, kBlock, true, 0};
        }
        if (tall > kTile) {
          multiply_block<kNumbers, 2, 2>(a, steps, b, c, kBlock * 4, !first, work);
        } else {
          multiply_block<kNumbers, 1, 2>(a, steps, b, c, kBlock * 4, !first, work);
        }
        work.pending.finish();
        if (last) {
          work.pending.add = !piece.overwrite;
          work.pending.past_cache = past_cache;
          work.pending.stride = piece.dw_stride;
          work.pending.set(c, tall, wide, to);
        }
      }
    }
    run = next;
  }
  work.pending.finish();
  _mm_sfence();
  _tile_release();
}

}  // namespace

HEDDLE_AMX_TARGET void wgrad(bool split, WgradPieces& pieces, std::byte* scratch) {
  split ? run_wgrad<Numbers::split_fp32>(pieces, scratch) : run_wgrad<Numbers::bf16>(pieces, scratch);
}

}  // namespace heddle::kernels::host::amx
#else
namespace heddle::kernels::host::amx {
void wgrad(bool, WgradPieces&, std::byte*) { internal_error("amx on another processor"); }
}  // namespace heddle::kernels::host::amx
#endif
