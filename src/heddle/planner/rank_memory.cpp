#include "heddle/planner/rank_memory.h"

#include <algorithm>
#include <utility>

#include "heddle/base/parallel.h"

namespace heddle::planner {

namespace {

RankMemory memory_of_rank(const plan::Plan& plan, const plan::Lowered& lowered, std::string_view backend,
                          int64_t capacity_bytes, int pipeline_rank) {
  RankMemory r;
  r.pipeline_rank = pipeline_rank;
  r.ranks = plan.mesh.stage_ranks();
  const std::vector<int>& classes = lowered.program.class_of_rank;
  r.rank = static_cast<int>(std::find(classes.begin(), classes.end(), pipeline_rank) - classes.begin());
  // The arena that training makes is as large as a step without a limit takes. In it a value finds the place that
  // it has there: so that step is walked once. Experts of several ranks want room for uneven rows; values that come
  // back from the host lie otherwise in an arena.
  if (plan.mesh.ep * plan.mesh.etp == 1) {
    runtime::MemoryPrediction roomy = runtime::predict_memory(lowered.program, r.rank, backend);
    if (roomy.host_reserved_bytes == 0 && ir::storage_bytes(roomy.reserved_bytes) < capacity_bytes) {
      r.memory = std::move(roomy);
      return r;
    }
  }
  try {  // in the arena that training would make
    const int64_t arena = runtime::arena_bytes(lowered.program, r.rank, backend, capacity_bytes);
    r.memory = runtime::predict_memory(lowered.program, r.rank, backend, arena, 1, capacity_bytes);
  } catch (const ir::OutOfMemory&) {
    r.memory = runtime::predict_memory(lowered.program, r.rank, backend);
    r.fits = false;
  }
  return r;
}

}  // namespace

std::vector<RankMemory> memory_of_ranks(const plan::Plan& plan, const plan::Lowered& lowered,
                                        std::string_view backend, int64_t capacity_bytes) {
  std::vector<RankMemory> ranks(static_cast<size_t>(plan.mesh.pp));
  for_each_index(plan.mesh.pp, [&](int64_t i) {
    ranks[i] = memory_of_rank(plan, lowered, backend, capacity_bytes, static_cast<int>(i));
  });
  return ranks;
}

const RankMemory& fullest_of(const std::vector<RankMemory>& ranks) {
  return *std::max_element(ranks.begin(), ranks.end(), [](const RankMemory& a, const RankMemory& b) {
    return a.memory.reserved_bytes < b.memory.reserved_bytes;
  });
}

}  // namespace heddle::planner
