// Measures transfers between each pair of ranks, in rounds in which every rank has one partner, and finds slow
// pairs.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "heddle/comm/communicator.h"
#include "heddle/train/rank_exchange.h"

namespace heddle::session {

/// Seconds that so many bytes take there and back between this rank and each other, the shortest of `times`; 0 to
/// itself. All ranks call it together; `link` is of all of them.
std::vector<double> transfer_times(comm::Communicator& link, train::RankExchange& ranks, int64_t bytes, int times);
/// Times of all pairs, [rank][rank], the same on all ranks.
std::vector<std::vector<double>> all_transfer_times(comm::Communicator& link, train::RankExchange& ranks,
                                                    int64_t bytes, int times);

struct SlowPair {
  int a = 0, b = 0;  // b −1: every pair of a is slow, this is the middle one
  double transfer_s = 0;
  double usual_s = 0;  // time of other pairs alike, or of this one before
  double times() const { return transfer_s / usual_s; }
};

inline constexpr double kSlowPair = 2;  // times as long as usual
/// The slow pairs in `now`, compared with `before`; where that is empty, with other pairs on one node, or on two.
/// `node_of`: each rank's node.
std::vector<SlowPair> slow_pairs(const std::vector<std::vector<double>>& now,
                                 const std::vector<std::vector<double>>& before, std::span<const int> node_of);

}  // namespace heddle::session
