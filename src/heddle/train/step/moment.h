// The moment within a step at which an op ran: causes come before effects, on whichever rank. An error on several
// ranks began at the earliest moment.
#pragma once

#include <compare>
#include <cstdint>
#include <string>

#include "heddle/plan/plan.h"
#include "heddle/train/rank_exchange.h"

namespace heddle::train {

struct Moment {
  static constexpr int64_t kNever = int64_t{1} << 40;
  int64_t microbatch = kNever, phase = 0, listing = 0, op = 0, rank = 0;
  auto operator<=>(const Moment&) const = default;
};

/// The stage that a chunk of a listing is; -1: none, as in the listings of copies, or before any chunk begins.
int stage_of(const plan::Lowered& lowered, int listing, int chunk);

/// `order` counts the ops of a phase and microbatch.
Moment moment_of(const plan::Lowered& lowered, int listing, const ir::Op& op, int microbatch, int64_t order,
                 int rank);

/// "'x' of linear in layer 3 (phase F, microbatch 1, rank 2)".
std::string place_text(const ir::Op& op, const std::string& value, int microbatch, const RankExchange& ranks);

/// The earliest of what the ranks have found, by its moment; `none` where no rank has. All ranks call it together.
std::string earliest(RankExchange& ranks, const Moment& found_at, const std::string& found,
                     const std::string& none);

}  // namespace heddle::train
