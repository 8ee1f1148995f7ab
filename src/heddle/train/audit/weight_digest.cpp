#include "heddle/train/audit/weight_digest.h"

#include <algorithm>
#include <cstddef>
#include <optional>

#include "heddle/train/audit/digest_sums.h"
#include "heddle/train/controllers/expert_migration.h"
#include "heddle/train/parameters.h"

namespace heddle::train {

namespace {

constexpr int64_t kPieceElements = 1 << 16, kPiecesOfOneThread = 256;

// Sums of whole numbers below 2^32 are exact as those of doubles.
uint32_t summed_over(RankExchange& ranks, uint32_t mine) {
  double sum = mine;
  ranks.sum({&sum, 1});
  return static_cast<uint32_t>(static_cast<uint64_t>(sum));
}

}  // namespace

WeightDigest::WeightDigest(Trainer& trainer, Of of) : trainer_(trainer), of_(of) { list_pieces(); }

void WeightDigest::list_pieces() {
  placements_ = placements_in(trainer_.controllers());
  seeds_.clear();
  pieces_.clear();
  for (const StateTensor& tensor : trainer_.state()) {
    seeds_.push_back(digest_seed(tensor.name));
    if (tensor.is_frozen() || !tensor.is_here() || tensor.is_master != (of_ == Of::weights)) continue;
    for (model::Extent run : trainer_.owned_extents(tensor)) {
      for (; run.count > 0; run.local += kPieceElements, run.whole += kPieceElements, run.count -= kPieceElements)
        pieces_.push_back({seeds_.size() - 1, {run.local, run.whole, std::min(run.count, kPieceElements)}});
    }
  }
}

std::string WeightDigest::take() {
  if (placements_ != placements_in(trainer_.controllers())) list_pieces();
  const std::vector<StateTensor> state = trainer_.state();
  std::vector<std::optional<StateElements>> held(state.size());
  for (const Piece& piece : pieces_) {
    if (!held[piece.tensor]) held[piece.tensor].emplace(state[piece.tensor]);
  }
  const auto count = std::ssize(pieces_);
  uint32_t low = 0, high = 0;
#pragma omp parallel for schedule(static) reduction(+ : low, high) if (count > kPiecesOfOneThread)
  for (int64_t i = 0; i < count; ++i) {
    const Piece& piece = pieces_[static_cast<size_t>(i)];
    const device::TensorView& view = held[piece.tensor]->view();
    const int64_t width = size_of(view.dtype);
    DigestSums sums;
    sums.add(seeds_[piece.tensor], static_cast<const std::byte*>(view.data) + piece.extent.local * width, width,
             piece.extent.whole, piece.extent.count);
    low += sums.low;
    high += sums.high;
  }
  return DigestSums{summed_over(trainer_.ranks(), low), summed_over(trainer_.ranks(), high)}.text();
}

}  // namespace heddle::train
