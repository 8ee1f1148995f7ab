// The pieces of an exchange in rounds that no rank can wait in for ever.
//
// NCCL matches messages in the order in which both sides put them, and what stands in one group ends together. So
// all ranks have to go through the same rounds. In round (s, n) rank r sends its n-th piece for rank r + s and
// takes the n-th of rank r − s. Steps come before numbers, as pieces are made: for the next rank first.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "heddle/comm/communicator.h"

namespace heddle::comm::nccl {

struct Round {
  static constexpr size_t none = static_cast<size_t>(-1);
  size_t send = none, receive = none;  // indices into the lists
};

/// The rounds of all pieces that go to others or come from them, but for those of no bytes.
inline std::vector<Round> rounds_of(std::span<const Piece> sends, std::span<const Piece> receives, int rank,
                                    int size) {
  const auto by_peer = [&](std::span<const Piece> pieces) {
    std::vector<std::vector<size_t>> of(static_cast<size_t>(size));
    for (size_t i = 0; i < pieces.size(); ++i) {
      if (pieces[i].bytes > 0) of.at(static_cast<size_t>(pieces[i].peer)).push_back(i);
    }
    return of;
  };
  const auto to = by_peer(sends), from = by_peer(receives);
  std::vector<Round> rounds;
  for (int step = 1; step < size; ++step) {
    const auto& out = to[(rank + step) % size];
    const auto& in = from[(rank - step + size) % size];
    for (size_t n = 0; n < out.size() || n < in.size(); ++n)
      rounds.push_back({n < out.size() ? out[n] : Round::none, n < in.size() ? in[n] : Round::none});
  }
  return rounds;
}

}  // namespace heddle::comm::nccl
