// Auto Search: all plans of a space by the estimate, the best few hundred again by their schedule, action by
// action.
//
// Every core estimates; what doesn't fit the memory is dropped; of plans that differ only in recomputation and
// offload the fastest that fits stays. The short list is then timed exactly: layers split over stages by their
// prices, each stage's F, I and W, and the schedule itself; memory from the schedule's peaks. Those of it that
// could still come among the best choose what to keep stage by stage (stage_keeping.h). The result does not depend
// on the number of threads.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "heddle/search/launch.h"
#include "heddle/search/space.h"
#include "heddle/search/staging.h"

namespace heddle::search {

struct StageChoice {
  std::string recompute;  // the word of recompute_choices
  Keeping keeping;
};

struct Ranked {
  Job job;                // job.pipeline is the schedule, job.imbalance the median
  std::string schedule;   // its name in schedule/generators
  std::string recompute;  // the word of recompute_choices; where stages differ, of the one that keeps least
  std::vector<StageChoice> by_stage;  // [stage] where they differ, else empty
  Estimate estimate;                  // closed forms
  Exact exact;                        // basis of the ranking; memory holds routing's 99th percentile
  double simulated_step_s = 0;        // Heddle's whole step program; 0: it was not simulated
  double live_bytes = 0;              // that program's on its fullest rank, at the fullest moment of a step
  double reserved_bytes = 0;          // the arena that it gets there; 0: it was not counted
  double p99_step_s = 0;              // exact, all of the step's routing at its 99th percentile
  double tokens_per_s_per_device = 0, model_flops_utilization = 0;  // from exact.step_s
};

struct Query {
  Space space;
  double memory_bytes = 0;  // memory of a device that a plan may use; 0: usable_bytes of it
  int top = 5;
  int short_list = 300;  // timed exactly
  int threads = 0;       // 0: one a core
  bool any = false;      // asks whether a plan fits: timing ends with the first one
  Behaviour behaviour;
};

struct Answer {
  std::vector<Ranked> top;             // no two with the same layout and schedule
  uint64_t plans = 0, fitting = 0;     // estimated
  uint64_t passed_over = 0;            // too slow even with everything in its usual place, so not estimated further
  uint64_t layouts = 0;                // plans without recomputation and offload
  uint64_t timed = 0;                  // exactly
  uint64_t by_stage = 0;               // timed ones, also with a choice for each stage
  double estimate_s = 0, exact_s = 0;  // wall time
  int threads = 1;
  bool stopped = false;  // early, with the best so far
  double memory_bytes = 0;
  std::string misfit;  // the plan that lacks least where nothing fits, and how much
  double plans_per_s_per_core() const {
    return estimate_s > 0 ? static_cast<double>(plans) / estimate_s / threads : 0;
  }
};

/// Receives layout families done, of how many, and plans so far, from one thread at a time.
using SearchProgress = std::function<void(size_t done, size_t of, uint64_t plans)>;

/// Searches the space. ConfigError for a job that can't be and for a restriction that leaves nothing.
Answer search(const Query& query, const SearchProgress& progress = {}, const std::function<bool()>& stop = {});

/// The plan with another way of context parallelism, that of `job`.
Ranked timed_anew(Ranked plan, const Job& job, const Behaviour& behaviour);

/// Returns the plan as a training program receives it.
Launch launch_of(const Ranked& plan);

/// Memory of a device that the driver, the collectives' buffers and an allocator's gaps leave.
double usable_bytes(const cost::Accelerator& device);

}  // namespace heddle::search
