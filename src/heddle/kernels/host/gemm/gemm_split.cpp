#include "heddle/kernels/host/gemm/gemm_split.h"

#include <algorithm>

namespace heddle::kernels::host {
namespace {
int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
/// The block length that cuts `length` as evenly as multiples of a panel allow, at most `most`.
int64_t even_block(int64_t length, int64_t most) {
  const int64_t blocks = std::max<int64_t>(1, ceil_div(length, most));
  return std::max(kPanelColumns, ceil_div(ceil_div(length, blocks), kPanelColumns) * kPanelColumns);
}
constexpr int64_t kPiecesPerThread = 4;
}  // namespace

int64_t PieceSplit::number(const RowGroups* groups) {
  first_[0] = 0;
  for (int64_t g = 0; g < groups_; ++g) {
    const int64_t rows = groups ? groups->end(g) - groups->begin(g) : equal_rows_;
    first_[g + 1] = first_[g] + ceil_div(rows, block_rows_) * ceil_div(columns_, block_columns_);
  }
  return first_[groups_];
}

PieceSplit PieceSplit::rows_by_columns(const RowGroups& groups, int64_t most_rows, int64_t columns, int threads,
                                       int64_t* first) {
  PieceSplit split;
  split.groups_ = groups.count();
  split.row_groups_ = &groups;
  split.columns_ = columns;
  split.first_ = first;
  // Tall pieces are cut by columns first, to spare what is copied anew for each piece.
  const bool tall = most_rows > kMostPieceRows;
  split.block_columns_ = even_block(columns, tall ? kMostTallPieceColumns : kMostPieceColumns);
  split.block_rows_ = groups.are_equal() ? even_block(groups.end(0), most_rows) : most_rows;
  while (split.number(&groups) < kPiecesPerThread * threads && threads > 1) {
    if (split.block_rows_ > kLeastRows && !(tall && split.block_columns_ > kLeastColumns)) {
      split.block_rows_ /= 2;
    } else if (split.block_columns_ > kLeastColumns) {
      split.block_columns_ = even_block(columns, split.block_columns_ / 2);
    } else {
      break;
    }
  }
  return split;
}

int64_t PieceSplit::chunk(int threads) const {
  constexpr int64_t kChunksPerThread = 16;
  const int64_t usual = std::max<int64_t>(1, count() / (kChunksPerThread * threads));
  if (row_groups_ == nullptr || !row_groups_->are_equal() || groups_ == 1) return usual;
  const int64_t blocks = ceil_div(row_groups_->end(0), block_rows_);
  return count() >= blocks * kPiecesPerThread * threads ? std::max(usual / blocks, int64_t{1}) * blocks : usual;
}

PieceSplit PieceSplit::equal(int64_t groups, int64_t rows, int64_t most_rows, int64_t columns, int threads,
                             int64_t* first) {
  PieceSplit split;
  split.groups_ = groups;
  split.equal_rows_ = rows;
  split.columns_ = columns;
  split.first_ = first;
  split.block_rows_ = even_block(rows, most_rows);
  split.block_columns_ = even_block(columns, kMostWgradColumns);
  while (split.number(nullptr) < threads) {
    if (split.block_rows_ > kLeastColumns && split.block_rows_ >= split.block_columns_) {
      split.block_rows_ = even_block(rows, split.block_rows_ / 2);
    } else if (split.block_columns_ > kLeastColumns) {
      split.block_columns_ = even_block(columns, split.block_columns_ / 2);
    } else {
      break;
    }
  }
  return split;
}

Piece PieceSplit::piece(int64_t index) const {
  const int64_t group = std::upper_bound(first_, first_ + groups_ + 1, index) - first_ - 1;
  const int64_t begin = row_groups_ ? row_groups_->begin(group) : 0;
  const int64_t rows = row_groups_ ? row_groups_->end(group) - begin : equal_rows_;
  const int64_t row_blocks = ceil_div(rows, block_rows_);
  const int64_t within = index - first_[group];
  Piece piece;
  piece.group = group;
  piece.row_begin = begin + within % row_blocks * block_rows_;
  piece.row_end = std::min(piece.row_begin + block_rows_, begin + rows);
  piece.column_begin = within / row_blocks * block_columns_;
  piece.column_end = std::min(piece.column_begin + block_columns_, columns_);
  return piece;
}

}  // namespace heddle::kernels::host
