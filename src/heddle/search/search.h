// Auto Search: all plans of a space by the estimate, the best few hundred again by their schedule, action by
// action.
//
// Every core estimates; what doesn't fit the memory is dropped; of plans that differ only in recomputation and
// offload the fastest that fits stays. The short list is then timed exactly: layers split over stages by their
// prices, each stage's F, I and W, and the schedule itself; memory from the schedule's peaks. The result does not
// depend on the number of threads.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "heddle/schedule/schedule.h"
#include "heddle/schedule/timing.h"
#include "heddle/search/space.h"

namespace heddle::search {

/// A job's pipeline in full.
struct Staged {
  schedule::Schedule schedule;
  schedule::Times times;                           // seconds, of each stage
  std::vector<schedule::StageBytes> stage_bytes;   // a microbatch's activations
  std::vector<int> layers;                         // of each stage, in the model's order; some may be 0
  std::vector<double> fixed_bytes, working_bytes;  // of each rank: weights and states; what a block works in
};
/// Layers split by prices unless `even`. ConfigError where the schedule can't be made for the job.
Staged stage_job(const Job& job, const Behaviour& behaviour = {});

/// The step timed action by action.
struct Exact {
  double step_s = 0;
  double bubble_s = 0;                  // of the busiest rank, synchronous
  double exposed_s = 0;                 // communication that is not hidden, busiest rank
  std::vector<int> layers;              // of each stage
  std::vector<double> rank_peak_bytes;  // of each rank
  double peak_bytes = 0;                // of the fullest
};
Exact exact_of(const Job& job, const Behaviour& behaviour = {});

struct Ranked {
  Job job;               // job.pipeline is the schedule
  std::string schedule;  // its name in schedule/generators
  std::string recompute;
  Estimate estimate;      // with the median imbalance; its memory with the 99th percentile's
  Exact exact;            // what the ranking follows
  double step_s_p99 = 0;  // exact, routing at its 99th percentile
  double tokens_per_s_per_device = 0, model_flops_utilization = 0;  // of exact.step_s
};

struct Query {
  Space space;
  double memory_bytes = 0;  // of a device; 0: as built, less what the driver and the collectives take
  int top = 5;
  int short_list = 300;
  int threads = 0;  // 0: one a core
  Behaviour behaviour;
};

struct Answer {
  std::vector<Ranked> top;
  uint64_t evaluated = 0, fitting = 0;  // plans
  uint64_t layouts = 0;                 // of them, without recomputation and offload
  uint64_t timed = 0;                   // exactly
  double estimate_s = 0, exact_s = 0;   // wall time
  int threads = 1;
  bool stopped = false;  // early; the best so far
  double memory_bytes = 0;
  std::string cheapest_misfit;  // where nothing fits: the plan that lacks least, and how much
};

/// `progress` is told of families done, of how many, and of plans so far, from one thread at a time.
Answer search(const Query& query, const std::function<void(size_t done, size_t of, uint64_t plans)>& progress = {},
              const std::atomic<bool>* stop = nullptr);

/// What a plan could have and the search leaves out.
const std::vector<std::string>& not_considered();

}  // namespace heddle::search
