// A search as all of its threads read it: the families of layouts, and what a plan of one may choose beside its
// layout and schedule.
#pragma once

#include <string>
#include <vector>

#include "heddle/search/block_work.h"
#include "heddle/search/lowered_blocks.h"
#include "heddle/search/search.h"

namespace heddle::search {

struct Choice {
  int recompute = 0;  // index
  bool offload = false;
  size_t residency = 0, sharding = 0;  // indices
  int replicas = 0;                    // replicas of hot experts (moe.replicas)
  double step_s = 0, peak_bytes = 0;   // estimated
};

/// One layout and schedule, and the fastest choice with it.
struct Candidate {
  size_t family = 0;
  int serial = 0;  // in the family
  int pp = 1, chunks = 1, dp = 1;
  Pipeline pipeline = one_f_one_b();
  Choice best;
};

/// The better first; of equals the one that came first.
bool before(const Candidate& a, const Candidate& b);

/// The input that all threads read.
struct Task {
  const Query& query;
  std::vector<Family> families;
  std::vector<RecomputeChoice> recompute;
  std::vector<bool> offload;
  std::vector<PricedResidency> residencies;  // in the order in which they are tried
  std::vector<Sharding> shardings;           // likewise
  std::vector<int> replicas;                 // choices for hot experts, the usual one first
  model::Parameters parameters;
  double memory_bytes = 0;
  size_t lightest = 0;  // the lightest residency on the device

  const LoweredBlocks* lowered() const { return query.space.job.software.lowered; }
  /// True if layers are lowered for all plans.
  bool lowers_all() const;
  /// Limit of the estimates that make the short list.
  double most_bytes() const;
  /// Limit of the plans that are then timed exactly.
  double most_exact_bytes() const;

  /// True if no residency with the same crossing leaves less on the device.
  bool leaves_least(size_t residency) const {
    const size_t next = residency + 1;
    return next == residencies.size() || !cross_alike(residency, next);
  }
  /// True if the same crosses from the host for a microbatch.
  bool cross_alike(size_t a, size_t b) const {
    return residencies[a].weights == residencies[b].weights && residencies[a].gradients == residencies[b].gradients;
  }

  void set_routing(Job& job, double quantile) const;
  /// True if the schedule can recompute and offload so: none of pairs computes the exchange again inside a pair.
  bool allows(Pipeline pipeline, const Recompute& r, bool offload) const {
    if (!pipeline->pairs()) return true;
    return !r.has(GroupName::layer) && !r.has(GroupName::moe) &&
           (!offload || query.space.restriction.offload_beside_pairs);
  }
};

/// Returns the task of a query. ConfigError for a job that can't be and for a restriction that leaves nothing.
Task task_of(const Query& query);

/// The job that the search is asked for, as the candidate has it; its recomputation and offload are left open.
Job job_of(const Task& task, const Candidate& plan);

/// The plan and what it lacks.
std::string misfit_text(const Task& task, const Candidate& plan);

}  // namespace heddle::search
