// A job as a training program receives it: the degrees and switches of a Job, the name of the pipeline's schedule
// and the layers of each stage. The estimate folds the last two into numbers.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "heddle/search/estimate.h"

namespace heddle::search {

/// Recomputation and offload of one stage of so many layers.
struct StageKeeping {
  int layers = 0;
  Recompute recompute;
  bool offload = false;
  bool operator==(const StageKeeping&) const = default;
};

struct Launch {
  Job job;
  std::string schedule = "1f1b";       // a name that schedule/generators knows; "interleaved" of several chunks
  std::string layout;                  // stages as in --pipeline-model-parallel-layout; empty: equal ones
  std::vector<StageKeeping> by_stage;  // in the model's order where stages differ; empty: all as the job says
  // Places of layers that do nothing among those of --num-layers, in order: stages then have as many places each,
  // and `layout` says the layers that are left.
  std::vector<int> noop;
  double memory_bytes = 0;        // memory of a device that it may use; 0: usable_bytes of it
  std::vector<std::string> lost;  // parts of a script that Heddle can't express
  bool operator==(const Launch&) const = default;
};

/// A launch of the job alone: the schedule that its degrees imply, stages as the estimate assumes them.
Launch launch_of(const Job& job);

/// A launch with so many layers on each stage, in the model's order, as a search has found them.
Launch launch_of(const Job& job, const std::vector<int>& layers);

/// Returns why the job's schedule can't be made with its ranks, chunks and microbatches; "" when it can.
std::string_view misfit_of(const Job& job);

/// Returns why no software can run the launch: it has no estimate, or no schedule of its size; "" when there are
/// both.
std::string impossible(const Launch& launch);

/// Sets everything that has no effect on the launch to its default: tensor overlap without tensor ranks, exchange
/// settings without experts, and the like. Estimates don't change; two launches do the same when their normal forms
/// are equal.
Launch normalized(Launch launch);

/// Layers of each stage (pp × chunks of them, in the model's order) as the estimate assumes them: equal where they
/// divide. Otherwise the last stage, which bears the head, takes fewer.
std::vector<int> layers_of_stages(const Job& job);

/// Returns the launch with another job in it. With as many stages, each has the layers that it had. Otherwise
/// layers are spread as a launch of the job alone has them, or evenly where they were even and still divide. What
/// each stage keeps stays where the stages and the job's recomputation do.
Launch with_job(const Launch& launch, const Job& job);

/// Number of layers, with those that do nothing.
int64_t places_of(const Launch& launch);
/// Returns the same launch with uneven stages expressed by layers that do nothing, at the ends of the shorter ones.
Launch padded(Launch launch);

/// "Ett|tt|tL" with repeats folded, or "" when the stages are equal.
std::string layout_text(const Job& job);
std::string layout_text(const Job& job, const std::vector<int>& layers);

}  // namespace heddle::search
