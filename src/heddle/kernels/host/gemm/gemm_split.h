// Cuts a product over groups into pieces for threads.
//
// Every group's rows × columns are cut into blocks of at most `rows` × `columns`. Pieces are numbered group by
// group, within a group column block by column block, so that neighbours share a weight. The cut never changes a
// result.
#pragma once

#include <cstdint>

#include "heddle/kernels/host/gemm/gemm_block.h"

namespace heddle::kernels::host {

struct Piece {
  int64_t group = 0;
  int64_t row_begin = 0, row_end = 0;  // rows of the product: rows of x, or of dw
  int64_t column_begin = 0, column_end = 0;
};

/// Rows that a group contributes to the product.
class PieceSplit {
 public:
  /// Blocks are halved, for threads to have enough of them, while they have more rows or columns than these.
  static constexpr int64_t kLeastRows = 64, kLeastColumns = 128;

  /// Forward and dgrad: rows are those of the groups. `first` has room for groups.count() + 1 numbers and must live
  /// as long as this. Aims at four pieces or more a thread, as far as blocks of 64 × 128 allow. Pieces that may be
  /// taller than kMostPieceRows have at most kMostTallPieceColumns and are cut by columns first.
  static PieceSplit rows_by_columns(const RowGroups& groups, int64_t most_rows, int64_t columns, int threads,
                                    int64_t* first);
  /// Wgrad: every group has `rows` × `columns`, cut into blocks of at most `most_rows` × kMostWgradColumns.
  static PieceSplit equal(int64_t groups, int64_t rows, int64_t most_rows, int64_t columns, int threads,
                          int64_t* first);

  int64_t count() const { return first_[groups_]; }
  /// Neighbours that a thread takes at once. Of groups of equal size all that read the same columns of a weight, so
  /// that one thread fetches them once.
  int64_t chunk(int threads) const;
  Piece piece(int64_t index) const;

 private:
  int64_t number(const RowGroups* groups);  // fills first_

  int64_t groups_ = 0;
  const RowGroups* row_groups_ = nullptr;
  int64_t equal_rows_ = 0;
  int64_t columns_ = 0;
  int64_t block_rows_ = 0;
  int64_t block_columns_ = kMostPieceColumns;
  int64_t* first_ = nullptr;  // [groups + 1]: number of the first piece of each group, then the count of pieces
};

}  // namespace heddle::kernels::host
