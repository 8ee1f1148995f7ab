// The blocks of a microbatch on a chunk, as copies from the host are timed for them: F; I with W; or I and W, each
// by itself, where the schedule runs them apart.
#pragma once

#include "heddle/passes/host/link_times.h"

namespace heddle::passes {

constexpr size_t kBlockF = 0, kBlockI = 1, kBlockW = 2, kBlocks = 3;
/// More than these are not fetched ahead of what is needed before them: about the matrices of a layer.
constexpr size_t kMostBetween = 8;

inline size_t block_of(ir::Phase phase, bool deferred) {
  if (phase == ir::Phase::F) return kBlockF;
  return phase == ir::Phase::W && deferred ? kBlockW : kBlockI;
}

inline std::vector<ir::Phase> phases_of(size_t block, bool deferred) {
  if (block == kBlockF) return {ir::Phase::F};
  if (block == kBlockI) return deferred ? std::vector{ir::Phase::I} : std::vector{ir::Phase::I, ir::Phase::W};
  return deferred ? std::vector{ir::Phase::W} : std::vector<ir::Phase>{};
}

/// The copies that an earlier pass has put into a block: they take the link's time where they are.
inline std::vector<Fetch> standing_fetches(const ir::Listing& listing, const Timeline& block,
                                           const Durations& duration_us) {
  std::vector<Fetch> fetches;
  for (const size_t i : block.ops) {
    const ir::Op& op = listing.ops[i];
    if (op.def->moves != ir::Moves::from_host) continue;
    fetches.push_back({.use = i, .copy_us = kMargin * duration_us(listing, op), .stands = true});
  }
  return fetches;
}

}  // namespace heddle::passes
