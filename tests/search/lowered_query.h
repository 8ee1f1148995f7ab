// Searches among plans of a mixture whose layers are lowered for their prices.
#pragma once

#include <gtest/gtest.h>

#include "heddle/config/run_config.h"
#include "heddle/search/lowered_blocks.h"
#include "heddle/search/search.h"

namespace heddle::search {

inline model::ModelConfig v2_lite() {
  return config::parse_run_config("", "", {"model.preset=deepseek-v2-lite"}).model;
}

inline plan::Plan plan_in_bf16() {
  plan::Plan plan;
  plan.dtype = Dtype::bf16;
  return plan;
}

inline Job job_of_lowered(const model::ModelConfig& c, const char* device) {
  Job j;
  j.shape = model::shape_of(c, "test");
  j.device = *cost::accelerator_named(device);
  j.sequence = 4096;
  j.global_batch = 256;
  return j;
}

/// On 16 devices, of these plans alone.
inline Query query_of_lowered(const Job& job, const LoweredBlocks* blocks,
                              std::initializer_list<const char*> plans) {
  Query q;
  q.space.job = job;
  q.space.job.software.lowered = blocks;
  q.space.devices = 16;
  for (const char* only : plans) q.space.restriction.set(only);
  q.threads = 2;
  return q;
}

/// The least memory in which a search finds a plan, to 1 GiB.
inline double least_gib(Query q) {
  for (double gib = 4;; ++gib) {
    q.memory_bytes = gib * (1 << 30);
    const Answer a = search(q);
    if (a.top.empty()) continue;
    for (const Ranked& r : a.top) EXPECT_LE(r.exact.peak_bytes, q.memory_bytes);
    return gib;
  }
}

}  // namespace heddle::search
