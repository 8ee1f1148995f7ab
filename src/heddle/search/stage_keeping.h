// Chooses recomputation and offload stage by stage. The early ranks of a pipeline hold the most microbatches, so
// only they need to drop much. Layers moved to the later ranks make up for their recomputation.
//
// Two choices lean on each other: how each stage keeps its activations, and how many layers it has. They are made
// in turn. With the layers given, every rank begins with the fastest way. While its exact peak is over the limit,
// the stage that frees most bytes for a second more drops some: a greedy knapsack, a rank at a time. With the ways
// given, layers are spread so that no rank waits. This begins twice, with layers spread as if all stages kept
// everything and as if all kept least; then single layers leave the busiest rank. The idea of both at once: Sun et
// al., AdaPipe, ASPLOS 2024.
#pragma once

#include <optional>
#include <vector>

#include "heddle/search/staging.h"

namespace heddle::search {

struct KeptByStage {
  std::vector<int> way_of_stage;  // indices of `ways`
  Exact exact;
};

/// Returns the fastest that fits of all rounds; nullopt where no round fits. `ways` may hold what the schedule
/// allows.
std::optional<KeptByStage> keep_by_stage(const Job& job, const Behaviour& behaviour,
                                         const PreparedSchedule& prepared, const std::vector<Keeping>& ways,
                                         double memory_bytes);

/// A step with every stage kept in the fastest way, whatever its bytes: no choice by stage is faster than this but
/// for the unevenness of whole layers.
double unbounded_step_s(const Job& job, const Behaviour& behaviour, const PreparedSchedule& prepared,
                        const std::vector<Keeping>& ways);

/// The step of ways and layers that are given.
Exact exact_by_stage(const Job& job, const Behaviour& behaviour, const PreparedSchedule& prepared,
                     const std::vector<Keeping>& keeping_of_stage, const std::vector<int>& layers);

}  // namespace heddle::search
