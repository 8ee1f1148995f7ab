// The highway engine: any of fp32 and bf16 operands, fp32 arithmetic, for whatever Highway knows up to AVX2.
//
// C[M,N] = A·B in panels of 16 columns of B, copied (and widened, or transposed) into the first-level cache for a
// run of the depth; then strips of 6 rows of A go by. fp32 rows of A are read in place, bf16 ones from a widened
// copy; the transposed A of a weight gradient is copied in strips. Sums wait between runs in C itself where it is
// fp32 and takes whole panels, else in scratch.
//
// Weights are read in rows: one copying costs little beside the rows of A that meet it, and serves both directions,
// so that there is no packed form and a bf16 weight takes 2 bytes a parameter, an fp32 one none beside its master.
#include "heddle/kernels/host/simd_targets_to_avx2.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "heddle/kernels/host/gemm/gemm_highway.cpp"
#include <algorithm>

#include "heddle/kernels/host/cpu_features.h"
#include "heddle/kernels/host/gemm/gemm_block.h"
#include "hwy/foreach_target.h"
// The order matters: this one is compiled for each target.
#include "heddle/kernels/host/gemm/gemm_highway_panels-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heddle::kernels::host::HWY_NAMESPACE {
namespace {

constexpr int64_t kRun = 256;              // depth
constexpr int64_t kWgradRowsAtOnce = 252;  // n whose strips are copied together

constexpr int64_t kPanelBytes = kRun * kPanelWidth * 4;
constexpr int64_t kLeftBytes = std::max(kMostPieceRows, kWgradRowsAtOnce) * kRun * 4;
constexpr int64_t kSumsBytes =
    std::max(kMostPieceRows * kMostPieceColumns, kWgradRowsAtOnce* kMostWgradColumns) * 4;
static_assert(kPanelBytes + kLeftBytes + kSumsBytes <= kPieceScratchBytes);
static_assert(kWgradRowsAtOnce % kStripRows == 0);
static_assert(kMostPieceColumns % kPanelWidth == 0 && kMostWgradColumns % kPanelWidth == 0);

struct Room {
  float *panel, *left, *sums;
  explicit Room(std::byte* scratch)
      : panel(reinterpret_cast<float*>(scratch)),
        left(reinterpret_cast<float*>(scratch + kPanelBytes)),
        sums(reinterpret_cast<float*>(scratch + kPanelBytes + kLeftBytes)) {}
};

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

void panel_of(const Rows& m, bool transposed, int64_t column, int64_t depth_begin, int64_t depth, int64_t width,
              float* out) {
  const int64_t at = transposed ? column * m.stride + depth_begin : depth_begin * m.stride + column;
  if (m.dtype == Dtype::bf16) {
    fill_panel(static_cast<const bf16*>(m.data) + at, m.stride, transposed, depth, width, out);
  } else {
    fill_panel(static_cast<const float*>(m.data) + at, m.stride, transposed, depth, width, out);
  }
}

/// Columns column .. column + width of sums (+ bias) to C's type.
template <class X>
void write_columns(const float* sums, int64_t sums_stride, int64_t rows, int64_t width, const float* bias, X* to,
                   int64_t stride) {
  for (int64_t r = 0; r < rows; ++r) {
    sweep(width, [&](int64_t i, auto lanes, auto) HEDDLE_BODY {
      V sum = load(sums + r * sums_stride + i, lanes);
      if (bias != nullptr) sum = hn::Add(sum, load(bias + i, lanes));
      store(sum, to + r * stride + i, lanes);
    });
  }
}

void add_columns(const float* sums, int64_t sums_stride, int64_t rows, int64_t width, float* to, int64_t stride) {
  for (int64_t r = 0; r < rows; ++r) {
    sweep(width, [&](int64_t i, auto lanes, auto) HEDDLE_BODY {
      const V sum = hn::Add(load(to + r * stride + i, lanes), load(sums + r * sums_stride + i, lanes));
      store(sum, to + r * stride + i, lanes);
    });
  }
}

}  // namespace

void Product(const ProductPiece& piece) {
  const Room room(piece.scratch);
  const int64_t columns = piece.column_end - piece.column_begin;
  const int64_t sums_stride = ceil_div(columns, kPanelWidth) * kPanelWidth;
  const bool in_place = piece.bias == nullptr && piece.c.dtype == Dtype::f32;
  // Of a piece's columns, those whose sums can stand in C.
  const int64_t direct = in_place ? columns / kPanelWidth * kPanelWidth : 0;
  float* const c = static_cast<float*>(piece.c.data) + piece.column_begin;
  for (int64_t begin = 0; begin < piece.depth; begin += kRun) {
    const int64_t deep = std::min(piece.depth - begin, kRun);
    const float* a = static_cast<const float*>(piece.a.data) + begin;
    int64_t a_row = piece.a.stride;
    if (piece.a.dtype == Dtype::bf16) {
      const bf16* from = static_cast<const bf16*>(piece.a.data) + begin;
      for (int64_t r = 0; r < piece.rows; ++r) {
        sweep(deep, [&](int64_t i, auto lanes, auto) HEDDLE_BODY {
          store(load(from + r * piece.a.stride + i, lanes), room.left + r * kRun + i, lanes);
        });
      }
      a = room.left;
      a_row = kRun;
    }
    for (int64_t column = 0; column < columns; column += kPanelWidth) {
      panel_of(piece.b, piece.b_transposed, piece.column_begin + column, begin, deep,
               std::min(columns - column, kPanelWidth), room.panel);
      BlockProduct block;
      block.depth = deep;
      block.a_row = a_row;
      block.b = room.panel;
      block.to = (column < direct ? c : room.sums) + column;
      block.to_stride = column < direct ? piece.c.stride : sums_stride;
      for (int64_t r = 0; r < piece.rows; r += kStripRows, block.to += kStripRows * block.to_stride) {
        block.a = a + r * a_row;
        block.from = begin == 0 ? nullptr : block.to;
        block.from_stride = block.to_stride;
        multiply_block<1>(std::min<int64_t>(piece.rows - r, kStripRows), block);
      }
    }
  }
  if (direct == columns) return;
  const int64_t at = piece.column_begin + direct;
  const float* bias = piece.bias != nullptr ? piece.bias + at : nullptr;
  if (piece.c.dtype == Dtype::bf16) {
    write_columns(room.sums + direct, sums_stride, piece.rows, columns - direct, bias,
                  static_cast<bf16*>(piece.c.data) + at, piece.c.stride);
  } else {
    write_columns(room.sums + direct, sums_stride, piece.rows, columns - direct, bias,
                  static_cast<float*>(piece.c.data) + at, piece.c.stride);
  }
}

void Wgrad(const WgradPiece& piece, std::byte* scratch) {
  const Room room(scratch);
  const int64_t columns = piece.k_end - piece.k_begin;
  const int64_t sums_stride = ceil_div(columns, kPanelWidth) * kPanelWidth;
  const int64_t whole = columns / kPanelWidth * kPanelWidth;
  // Finished sums are added once: runs before the last one leave theirs in dw only where it is overwritten.
  const int64_t direct = piece.overwrite || piece.rows <= kRun ? whole : 0;
  for (int64_t n = piece.n_begin; n < piece.n_end; n += kWgradRowsAtOnce) {
    const int64_t tall = std::min(piece.n_end - n, kWgradRowsAtOnce);
    float* const dw = piece.dw + n * piece.dw_stride + piece.k_begin;
    for (int64_t t = 0; t < piece.rows || t == 0; t += kRun) {
      const int64_t deep = std::min(piece.rows - t, kRun);
      for (int64_t r = 0; r < tall; r += kStripRows) {
        const int64_t rows = std::min<int64_t>(tall - r, kStripRows), at = t * piece.dy.stride + n + r;
        float* const strip = room.left + r * kRun;
        if (piece.dy.dtype == Dtype::bf16) {
          fill_strip(static_cast<const bf16*>(piece.dy.data) + at, piece.dy.stride, deep, rows, strip);
        } else {
          fill_strip(static_cast<const float*>(piece.dy.data) + at, piece.dy.stride, deep, rows, strip);
        }
      }
      for (int64_t column = 0; column < columns; column += kPanelWidth) {
        panel_of(piece.x, false, piece.k_begin + column, t, deep, std::min(columns - column, kPanelWidth),
                 room.panel);
        BlockProduct block;
        block.depth = deep;
        block.a_row = 1;
        block.b = room.panel;
        block.to = (column < direct ? dw : room.sums) + column;
        block.to_stride = column < direct ? piece.dw_stride : sums_stride;
        block.add = column < direct && !piece.overwrite;
        for (int64_t r = 0; r < tall; r += kStripRows, block.to += kStripRows * block.to_stride) {
          block.a = room.left + r * kRun;
          block.from = t == 0 ? nullptr : block.to;
          block.from_stride = block.to_stride;
          multiply_block<kStripRows>(std::min<int64_t>(tall - r, kStripRows), block);
        }
      }
    }
    if (direct == columns) continue;
    if (piece.overwrite) {
      write_columns<float>(room.sums + direct, sums_stride, tall, columns - direct, nullptr, dw + direct,
                           piece.dw_stride);
    } else {
      add_columns(room.sums + direct, sums_stride, tall, columns - direct, dw + direct, piece.dw_stride);
    }
  }
}

}  // namespace heddle::kernels::host::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heddle::kernels::host::highway {
namespace {
HWY_EXPORT(Product);
HWY_EXPORT(Wgrad);

/// Products are called without the list of kernels, too, where what is masked is kept from Highway.
void mask_once() { [[maybe_unused]] static const bool masked = (mask_highway(), true); }
}  // namespace

void product(const ProductPiece& piece) {
  mask_once();
  HWY_DYNAMIC_DISPATCH(Product)(piece);
}
void wgrad(const WgradPiece& piece, std::byte* scratch) {
  mask_once();
  HWY_DYNAMIC_DISPATCH(Wgrad)(piece, scratch);
}

}  // namespace heddle::kernels::host::highway
#endif  // HWY_ONCE
