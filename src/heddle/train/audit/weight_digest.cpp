#include "heddle/train/audit/weight_digest.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "heddle/base/hash.h"

namespace heddle::train {

namespace {

constexpr int64_t kPieceElements = 1 << 16, kPiecesOfOneThread = 256;

// Two sums of 32 bits, in instructions that every processor has for many elements at a time.
struct Sums {
  uint32_t low = 0, high = 0;
};

// The whole elements' words of 32 bits (16) from index `first` on.
template <class Word>
inline __attribute__((always_inline)) Sums sums_of(const Word* words, uint64_t seed, uint64_t first,
                                                   int64_t count) {
  const uint64_t start = mix_bits(seed + (first >> 32));
  const auto from = static_cast<uint32_t>(start) + static_cast<uint32_t>(first) * 0x9e3779b1u;
  const auto turn = static_cast<uint32_t>(start >> 32);
  Sums sums;
  for (int64_t i = 0; i < count; ++i) {
    uint32_t x = (static_cast<uint32_t>(words[i]) ^ turn) + from + static_cast<uint32_t>(i) * 0x9e3779b1u;
    x = (x ^ (x >> 16)) * 0x7feb352du;  // lowbias32 (Wellons, "Prospecting for Hash Functions")
    x = (x ^ (x >> 15)) * 0x846ca68bu;
    x ^= x >> 16;
    sums.low += x;
    sums.high += (x ^ turn) * (x | 1u);
  }
  return sums;
}

#if defined(__x86_64__)
#define HEDDLE_WIDEST __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define HEDDLE_WIDEST
#endif
HEDDLE_WIDEST Sums sums_of_32(const uint32_t* words, uint64_t seed, uint64_t first, int64_t count) {
  return sums_of(words, seed, first, count);
}
HEDDLE_WIDEST Sums sums_of_16(const uint16_t* words, uint64_t seed, uint64_t first, int64_t count) {
  return sums_of(words, seed, first, count);
}

Sums sums_of(const device::TensorView& view, uint64_t seed, const model::Extent& at) {
  const auto first = static_cast<uint64_t>(at.whole);
  switch (size_of(view.dtype)) {
    case 8: return sums_of_32(view.as<const uint32_t>() + 2 * at.local, seed, 2 * first, 2 * at.count);
    case 4: return sums_of_32(view.as<const uint32_t>() + at.local, seed, first, at.count);
    default: return sums_of_16(view.as<const uint16_t>() + at.local, seed, first, at.count);
  }
}

// Sums of whole numbers below 2^32 are exact as those of doubles.
uint32_t summed_over(RankExchange& ranks, uint32_t mine) {
  double sum = mine;
  ranks.sum({&sum, 1});
  return static_cast<uint32_t>(static_cast<uint64_t>(sum));
}

}  // namespace

WeightDigest::WeightDigest(Trainer& trainer) : trainer_(trainer) { list_pieces(); }

void WeightDigest::list_pieces() {
  homes_ = trainer_.homes();
  seeds_.clear();
  pieces_.clear();
  for (const StateTensor& tensor : trainer_.state()) {
    seeds_.push_back(hash_bytes(tensor.name));
    if (!tensor.is_master || tensor.is_frozen() || !tensor.is_here()) continue;
    for (model::Extent run : trainer_.owned_extents(tensor)) {
      for (; run.count > 0; run.local += kPieceElements, run.whole += kPieceElements, run.count -= kPieceElements)
        pieces_.push_back({seeds_.size() - 1, {run.local, run.whole, std::min(run.count, kPieceElements)}});
    }
  }
}

std::string WeightDigest::take() {
  if (homes_ != trainer_.homes()) list_pieces();
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
    const Sums sums = sums_of(held[piece.tensor]->view(), seeds_[piece.tensor], piece.extent);
    low += sums.low;
    high += sums.high;
  }
  low = summed_over(trainer_.ranks(), low);
  high = summed_over(trainer_.ranks(), high);
  return fmt::format("{:08x}{:08x}", high, low);
}

}  // namespace heddle::train
