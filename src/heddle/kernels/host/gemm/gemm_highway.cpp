// The highway engine: any of fp32 and bf16 operands, fp32 arithmetic, for whatever Highway knows up to AVX2.
//
// C[M,N] = A·B goes in runs of the depth and groups of columns. A group of B is copied (and widened, or transposed)
// in panels of 16 columns, which stay in the second-level cache. Then, strip by strip, 6 rows of A meet all panels.
// So A comes from memory once a group and a strip stays in the first-level cache. Rows of A in fp32 are read in
// place unless they would push each other out there, others from a copy of the strip. The transposed A of a weight
// gradient is copied in strips, all of them before the first panel. With more than one run, sums wait in scratch,
// block by block.
//
// Copies read operands from far. So blocks ask for the lines that are copied next: of B for the group behind, of
// a weight gradient's A for the run behind.
//
// Weights are read in rows. One copying costs little beside the rows of A that meet it, and serves both directions.
// So there is no packed form: a bf16 weight takes 2 bytes a parameter, an fp32 one none beside its master.
#include "heddle/kernels/host/simd_targets_to_avx2.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "heddle/kernels/host/gemm/gemm_highway.cpp"
#include <algorithm>

#include "heddle/kernels/host/cpu_features.h"
#include "heddle/kernels/host/gemm/gemm_highway_room.h"
#include "hwy/foreach_target.h"
// The order matters: this one is compiled for each target.
#include "heddle/kernels/host/gemm/gemm_highway_panels-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heddle::kernels::host::HWY_NAMESPACE {
namespace {

using highway::kRun;
using highway::Room;

void panels_of(const Rows& m, bool transposed, int64_t column, int64_t depth_begin, int64_t depth, int64_t columns,
               float* out, int64_t out_panel) {
  const int64_t at = transposed ? column * m.stride + depth_begin : depth_begin * m.stride + column;
  if (m.dtype == Dtype::bf16) {
    fill_panels(static_cast<const bf16*>(m.data) + at, m.stride, transposed, depth, columns, out, out_panel);
  } else {
    fill_panels(static_cast<const float*>(m.data) + at, m.stride, transposed, depth, columns, out, out_panel);
  }
}

/// to[row][0 … deep) = `deep` numbers of some rows of A, widened.
template <class X>
void copy_rows_of(const X* from, int64_t stride, int64_t rows, int64_t deep, float* to, int64_t to_stride) {
  for (int64_t r = 0; r < rows; ++r, from += stride, to += to_stride) {
    sweep(deep, [&](int64_t i, auto lanes, auto) HEDDLE_BODY { store(load(from + i, lanes), to + i, lanes); });
  }
}
void copy_rows(const Rows& a, int64_t row, int64_t rows, int64_t depth, int64_t deep, float* to,
               int64_t to_stride) {
  const int64_t at = row * a.stride + depth;
  if (a.dtype == Dtype::bf16) {
    copy_rows_of(static_cast<const bf16*>(a.data) + at, a.stride, rows, deep, to, to_stride);
  } else {
    copy_rows_of(static_cast<const float*>(a.data) + at, a.stride, rows, deep, to, to_stride);
  }
}

/// True if the lines of a strip of fp32 rows, `deep` numbers of each, and a panel push each other out. They then
/// fall on few sets of a first-level cache (of which a way has 4 KiB).
bool rows_collide(int64_t stride, int64_t deep) {
  constexpr int64_t kWayBytes = 4096, kMostInSet = 3;
  int64_t most = 0;
  for (int64_t r = 0; r < kStripRows; ++r) {
    int64_t together = 0;
    for (int64_t other = 0; other < kStripRows; ++other) {
      together += ((r - other) * stride * 4 & (kWayBytes - 1)) < deep * 4;
    }
    most = std::max(most, together);
  }
  return most > kMostInSet;
}

/// Asks for the lines of some columns of a row.
void fetch_row(const Rows& m, int64_t row, int64_t begin, int64_t end) {
  const auto* const first = static_cast<const std::byte*>(m.data) + row * m.stride * size_of(m.dtype);
  for (int64_t at = begin * size_of(m.dtype); at < end * size_of(m.dtype); at += 64) __builtin_prefetch(first + at);
}

/// Lines of a part of a matrix that is copied later. Blocks take them in turn, some rows of a column of lines each.
class LinesAhead {
 public:
  LinesAhead() = default;
  LinesAhead(const Rows& m, int64_t row, int64_t rows, int64_t column, int64_t columns)
      : first_(static_cast<const std::byte*>(m.data) + (row * m.stride + column) * size_of(m.dtype)),
        stride_(m.stride * size_of(m.dtype)),
        rows_(rows),
        lines_((columns * size_of(m.dtype) + kLineBytes - 1) / kLineBytes) {}

  bool empty() const { return row_ >= rows_; }
  void give(BlockProduct& block) {
    block.ahead = first_ + row_ * stride_ + line_ * kLineBytes;
    block.ahead_step = stride_;
    if (++line_ < lines_) return;
    line_ = 0;
    row_ += std::max<int64_t>(1, block.depth / kStepsOfLine);
  }

 private:
  static constexpr int64_t kLineBytes = 64;
  const std::byte* first_ = nullptr;
  int64_t stride_ = 0, rows_ = 0, lines_ = 0;
  int64_t row_ = 0, line_ = 0;  // of the next block
};

/// The operand B of a piece: columns `column` … column + columns over the depth.
struct RightOperand {
  Rows rows;
  bool transposed = false;
  int64_t column = 0, columns = 0, depth = 0;

  /// B of the group behind the one at `group` (column of the piece) and `begin` (depth), in runs of `run`.
  LinesAhead behind(int64_t group, int64_t begin, int64_t run) const {
    group += highway::kGroupColumns;
    if (group >= columns) group = 0, begin += run;
    if (begin >= depth) return {};
    const int64_t wide = std::min(columns - group, highway::kGroupColumns), deep = std::min(depth - begin, run);
    return transposed ? LinesAhead(rows, column + group, wide, begin, deep)
                      : LinesAhead(rows, begin, deep, column + group, wide);
  }
};

/// C of a group of panels over a run.
struct GroupOfC {
  int64_t columns = 0;
  bool first = true, last = true;  // run
  std::byte* c = nullptr;          // row 0 of the group's first column
  int64_t c_stride = 0, c_size = 4;
  const float* bias = nullptr;
  float* sums = nullptr;  // [strip][panel][6][16], where they wait
};

/// A strip of A meets the panels of a group. block: A and its depth. next: of the strip behind it, what each panel
/// asks for, `next_step` apart. Blocks ask for lines of `soon`, then of `later`.
template <int64_t kDepthStride>
HWY_INLINE void multiply_strip(const GroupOfC& group, const Strips& strips, int64_t s, const float* panels,
                               int64_t panel_floats, const float* next, int64_t next_step, LinesAhead& soon,
                               LinesAhead& later, BlockProduct& block) {
  const int64_t count = (group.columns + kPanelWidth - 1) / kPanelWidth;
  float* wait = group.sums + s * count * kStripRows * kPanelWidth;
  std::byte* c = group.c + strips.begin(s) * group.c_stride * group.c_size;
  block.to_stride = group.last ? group.c_stride : kPanelWidth;
  for (int64_t p = 0; p < count; ++p, wait += kStripRows * kPanelWidth, c += kPanelWidth * group.c_size) {
    block.b = panels + p * panel_floats;
    block.next = next + std::min<int64_t>(p, kStripRows - 1) * next_step;
    block.from = group.first ? nullptr : wait;
    block.to = group.last ? static_cast<void*>(c) : wait;
    if (group.last) {
      block.width = std::min(group.columns - p * kPanelWidth, kPanelWidth);
      block.bias = group.bias != nullptr ? group.bias + p * kPanelWidth : nullptr;
    }
    if (LinesAhead& lines = soon.empty() ? later : soon; lines.empty()) {
      block.ahead = reinterpret_cast<const std::byte*>(block.b);  // is here
      block.ahead_step = 0;
    } else {
      lines.give(block);
    }
    multiply_block<kDepthStride>(strips.size(s), block);
  }
}

}  // namespace

void Product(const ProductPiece& piece) {
  const int64_t columns = piece.column_end - piece.column_begin;
  const int64_t run = highway::run_of(piece.depth);
  const Room room(piece.scratch, kStripRows, columns, run);
  const Strips strips(piece.rows);
  const RightOperand right{piece.b, piece.b_transposed, piece.column_begin, columns, piece.depth};
  const bool copies = piece.a.dtype == Dtype::bf16 || rows_collide(piece.a.stride, std::min(run, piece.depth));
  GroupOfC group;
  group.c_stride = piece.c.stride;
  group.c_size = size_of(piece.c.dtype);
  for (int64_t begin = 0; begin < piece.depth; begin += run) {
    const int64_t deep = std::min(piece.depth - begin, run);
    group.first = begin == 0;
    group.last = begin + deep == piece.depth;
    BlockProduct block;
    block.depth = deep;
    block.a_row = copies ? run : piece.a.stride;
    block.narrow = group.last && piece.c.dtype == Dtype::bf16;
    for (int64_t column = 0; column < columns; column += highway::kGroupColumns) {
      const int64_t at = piece.column_begin + column;
      group.columns = std::min(columns - column, highway::kGroupColumns);
      group.c = static_cast<std::byte*>(piece.c.data) + at * group.c_size;
      group.bias = piece.bias != nullptr ? piece.bias + at : nullptr;
      group.sums = room.sums + column * strips.count * kStripRows;
      LinesAhead soon = right.behind(column, begin, run), later;
      panels_of(piece.b, piece.b_transposed, at, begin, deep, group.columns, room.panels, Room::panel_step(run));
      for (int64_t s = 0; s < strips.count; ++s) {
        const int64_t row = strips.begin(s), after = s + 1 < strips.count ? strips.begin(s + 1) : 0;
        if (copies) copy_rows(piece.a, row, strips.size(s), begin, deep, room.left, run);
        const float* const a = static_cast<const float*>(piece.a.data) + begin;
        block.a = copies ? room.left : a + row * piece.a.stride;
        const float* const next = piece.a.dtype == Dtype::f32 ? a + after * piece.a.stride : block.a;
        multiply_strip<1>(group, strips, s, room.panels, Room::panel_step(run), next,
                          piece.a.dtype == Dtype::f32 ? piece.a.stride : 0, soon, later, block);
      }
    }
  }
}

void Wgrad(const WgradPiece& piece, std::byte* scratch) {
  constexpr int64_t kRowsTogether = 16;  // of dy, so that the lines that strips share are still near
  constexpr int64_t kStripsAhead = 2;
  const int64_t columns = piece.k_end - piece.k_begin, tall = piece.n_end - piece.n_begin;
  float* const dw = piece.dw + piece.n_begin * piece.dw_stride + piece.k_begin;
  if (piece.rows == 0) {
    for (int64_t n = 0; n < tall && piece.overwrite; ++n) std::fill_n(dw + n * piece.dw_stride, columns, 0.0f);
    return;
  }
  const int64_t run = highway::run_of(piece.rows), strip_floats = Room::strip_floats(run);
  const Room room(scratch, tall, columns, run);
  const Strips strips(tall);
  const RightOperand right{piece.x, false, piece.k_begin, columns, piece.rows};
  GroupOfC group;
  group.c_stride = piece.dw_stride;
  for (int64_t t = 0; t < piece.rows; t += run) {
    const int64_t deep = std::min(piece.rows - t, run);
    group.first = t == 0;
    group.last = t + deep == piece.rows;
    for (int64_t d = 0; d < deep; d += kRowsTogether) {
      const int64_t rows = std::min(deep - d, kRowsTogether);
      // Rows that are copied next, from wherever they are, a few with each strip.
      const int64_t ahead = std::min(rows, piece.rows - (t + d + rows));
      for (int64_t s = 0; s < strips.count; ++s) {
        for (int64_t r = ahead * s / strips.count; r < ahead * (s + 1) / strips.count; ++r) {
          fetch_row(piece.dy, t + d + rows + r, piece.n_begin, piece.n_end);
        }
        const int64_t at = (t + d) * piece.dy.stride + piece.n_begin + strips.begin(s);
        float* const to = room.left + s * strip_floats + d * kStripRows;
        // Stores wait for their lines in order: those of a later strip are asked for.
        for (int64_t i = 0; i < rows * kStripRows; i += 16)
          __builtin_prefetch(to + kStripsAhead * strip_floats + i, 1);
        if (piece.dy.dtype == Dtype::bf16) {
          fill_strip(static_cast<const bf16*>(piece.dy.data) + at, piece.dy.stride, rows, strips.size(s), to);
        } else {
          fill_strip(static_cast<const float*>(piece.dy.data) + at, piece.dy.stride, rows, strips.size(s), to);
        }
      }
    }
    LinesAhead later;
    if (t + deep < piece.rows) {
      later = {piece.dy, t + deep, std::min(piece.rows - (t + deep), run), piece.n_begin, tall};
    }
    BlockProduct block;
    block.depth = deep;
    block.a_row = 1;
    // Finished sums are added once.
    block.add = group.last && !piece.overwrite;
    for (int64_t column = 0; column < columns; column += highway::kGroupColumns) {
      group.columns = std::min(columns - column, highway::kGroupColumns);
      group.c = reinterpret_cast<std::byte*>(dw + column);
      group.sums = room.sums + column * strips.count * kStripRows;
      LinesAhead soon = right.behind(column, t, run);
      panels_of(piece.x, false, piece.k_begin + column, t, deep, group.columns, room.panels, Room::panel_step(run));
      for (int64_t s = 0; s < strips.count; ++s) {
        block.a = room.left + s * strip_floats;
        const float* const next = room.left + (s + 1 < strips.count ? s + 1 : 0) * strip_floats;
        multiply_strip<kStripRows>(group, strips, s, room.panels, Room::panel_step(run), next, run, soon, later,
                                   block);
      }
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

int64_t product_scratch_bytes(int64_t rows, int64_t columns, int64_t depth) {
  return Room::of_product(rows, columns, depth);
}
int64_t wgrad_scratch_bytes(int64_t n, int64_t k, int64_t rows) { return Room::of_gradient(n, k, rows); }
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
