// The memory of each rank of a lowered program: the arena that training would make for it. `heddle inspect` prints
// this, and a search that writes Heddle's own configuration promises it: one figure from one place.
#pragma once

#include <vector>

#include "heddle/config/run_config.h"
#include "heddle/plan/plan.h"
#include "heddle/runtime/predict.h"

namespace heddle::planner {

/// The ranks of one pipeline rank: all alike.
struct RankMemory {
  int pipeline_rank = 0;
  int rank = 0;  // the first of them
  int ranks = 0;
  runtime::MemoryPrediction memory;  // as without a limit where it does not fit
  bool fits = true;
};

/// The memory of every pipeline rank, in an arena of at most `capacity_bytes`.
std::vector<RankMemory> memory_of_ranks(const plan::Plan& plan, const plan::Lowered& lowered,
                                        std::string_view backend, int64_t capacity_bytes);

/// The one that reserves most: of equals the first.
const RankMemory& fullest_of(const std::vector<RankMemory>& ranks);

}  // namespace heddle::planner
