// The scratch of a piece of the highway engine, by the piece's shape. It has a group of panels of B over a run of
// the depth, a strip of A (of a weight gradient all strips), and sums that wait between runs. One layout for all
// instruction sets.
#pragma once

#include <algorithm>

#include "heddle/kernels/host/gemm/gemm_block.h"

namespace heddle::kernels::host::highway {

constexpr int64_t kRun = 256;  // depth, at most
constexpr int64_t kGroupColumns =
    128;  // of B, copied at once: 128 KiB over a run, half of a small second-level cache
constexpr int64_t kMostStripRows = 6;  // as kStripRows of the block
constexpr int64_t kDepthUnit = 16;
constexpr int64_t kColumnUnit = 16;

constexpr int64_t round_up(int64_t a, int64_t b) { return (a + b - 1) / b * b; }

/// Depth of a run: the runs are as equal as whole lines allow.
constexpr int64_t run_of(int64_t depth) {
  const int64_t runs = std::max<int64_t>(1, (depth + kRun - 1) / kRun);
  return round_up(std::max<int64_t>(1, (depth + runs - 1) / runs), kDepthUnit);
}

struct Room {
  float *panels, *left, *sums;
  /// rows × columns of C and the depth of a run; left_rows: of A.
  Room(std::byte* scratch, int64_t left_rows, int64_t columns, int64_t run)
      : panels(reinterpret_cast<float*>(scratch)),
        left(panels + panel_floats(columns, run)),
        sums(left + left_floats(left_rows, run)) {}

  /// From panel to panel and from strip to strip, a line more than a full one takes. Else the lines of those that
  /// are written side by side would fall on few sets of the cache.
  static constexpr int64_t panel_step(int64_t run) { return run * kColumnUnit + 16; }
  static constexpr int64_t panel_floats(int64_t columns, int64_t run) {
    return std::min(round_up(columns, kColumnUnit), kGroupColumns) / kColumnUnit * panel_step(run);
  }
  static constexpr int64_t strip_floats(int64_t run) { return run * kMostStripRows + 16; }
  static constexpr int64_t left_floats(int64_t rows, int64_t run) {
    return round_up(rows, kMostStripRows) / kMostStripRows * strip_floats(run);
  }

  /// Bytes for pieces of up to rows × columns over up to `depth`, of which some rows of A are copied at once.
  static constexpr int64_t bytes(int64_t left_rows, int64_t rows, int64_t columns, int64_t depth) {
    const int64_t run = std::min(round_up(depth, kDepthUnit), kRun);
    const int64_t sums = depth > kRun ? round_up(rows, kMostStripRows) * round_up(columns, kColumnUnit) : 0;
    return 4 * (panel_floats(columns, run) + left_floats(std::min(left_rows, rows), run) + sums);
  }
  static constexpr int64_t of_product(int64_t rows, int64_t columns, int64_t depth) {
    return bytes(kMostStripRows, std::min(rows, kMostTallPieceRows), std::min(columns, kMostTallPieceColumns),
                 depth);
  }
  static constexpr int64_t of_gradient(int64_t n, int64_t k, int64_t rows) {
    return bytes(kMostDeepWgradRows, std::min(n, kMostDeepWgradRows), std::min(k, kMostWgradColumns), rows);
  }
};

constexpr int64_t kAny = int64_t{1} << 30;
static_assert(Room::of_product(kAny, kAny, kAny) <= kPieceScratchBytes);
static_assert(Room::of_gradient(kAny, kAny, kAny) <= kPieceScratchBytes);

}  // namespace heddle::kernels::host::highway
