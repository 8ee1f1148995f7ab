#include "heddle/train/audit/weight_digest.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

#include "heddle/base/hash.h"

namespace heddle::train {

namespace {

constexpr int64_t kPieceElements = 1 << 16;

template <class Bits>
uint64_t sum_of(const Bits* bits, uint64_t seed, int64_t first, int64_t count) {
  constexpr uint64_t kOdd = 0x9e3779b97f4a7c15ull;
  uint64_t sum = 0;
  for (int64_t i = 0; i < count; ++i)
    sum += mix_bits(seed + static_cast<uint64_t>(first + i) * kOdd + static_cast<uint64_t>(bits[i]));
  return sum;
}

uint64_t sum_of(const device::TensorView& view, uint64_t seed, const model::Extent& at) {
  switch (size_of(view.dtype)) {
    case 8: return sum_of(view.as<const uint64_t>() + at.local, seed, at.whole, at.count);
    case 4: return sum_of(view.as<const uint32_t>() + at.local, seed, at.whole, at.count);
    default: return sum_of(view.as<const uint16_t>() + at.local, seed, at.whole, at.count);
  }
}

// Sums of whole numbers below 2^16 are exact as those of doubles.
uint64_t summed_over(RankExchange& ranks, uint64_t mine) {
  std::array<double, 4> parts{};
  for (size_t i = 0; i < parts.size(); ++i) parts[i] = static_cast<double>(mine >> (16 * i) & 0xffff);
  ranks.sum(parts);
  uint64_t sum = 0;
  for (size_t i = 0; i < parts.size(); ++i) sum += static_cast<uint64_t>(parts[i]) << (16 * i);
  return sum;
}

}  // namespace

WeightDigest::WeightDigest(Trainer& trainer) : trainer_(trainer) {
  for (const StateTensor& tensor : trainer.state()) {
    seeds_.push_back(hash_bytes(tensor.name));
    if (!tensor.is_master || tensor.is_frozen() || !tensor.is_here()) continue;
    for (model::Extent run : owned_extents(tensor, trainer.lowered(), trainer.mesh(), trainer.ranks().rank())) {
      for (; run.count > 0; run.local += kPieceElements, run.whole += kPieceElements, run.count -= kPieceElements)
        pieces_.push_back({seeds_.size() - 1, {run.local, run.whole, std::min(run.count, kPieceElements)}});
    }
  }
}

std::string WeightDigest::take() {
  const std::vector<StateTensor> state = trainer_.state();
  std::vector<std::optional<StateElements>> held(state.size());
  for (const Piece& piece : pieces_) {
    if (!held[piece.tensor]) held[piece.tensor].emplace(state[piece.tensor]);
  }
  const auto count = std::ssize(pieces_);
  uint64_t sum = 0;
#pragma omp parallel for schedule(static) reduction(+ : sum) if (count > 1)
  for (int64_t i = 0; i < count; ++i) {
    const Piece& piece = pieces_[static_cast<size_t>(i)];
    sum += sum_of(held[piece.tensor]->view(), seeds_[piece.tensor], piece.extent);
  }
  return fmt::format("{:016x}", summed_over(trainer_.ranks(), sum));
}

}  // namespace heddle::train
