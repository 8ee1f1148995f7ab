// A job as a training program is told of it: the degrees and switches of a Job, and beside them what the estimate
// folds into numbers: the name of the pipeline's schedule and the layers of each stage.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "heddle/search/estimate.h"

namespace heddle::search {

/// Whose words a launch script is written in.
enum class Dialect : uint8_t { megatron, mindspeed };
constexpr const char* name_of(Dialect dialect) {
  return dialect == Dialect::megatron ? "Megatron-LM" : "MindSpeed";
}

/// What one stage of so many layers computes again and sends to the host.
struct StageKeeping {
  int layers = 0;
  model::Recompute recompute;
  bool offload = false;
  bool operator==(const StageKeeping&) const = default;
};

struct Launch {
  Job job;
  std::string schedule = "1f1b";       // a name that schedule/generators knows; "interleaved" where vpp > 1
  std::string layout;                  // stages as in --pipeline-model-parallel-layout; empty: equal ones
  std::vector<StageKeeping> by_stage;  // in the model's order where stages differ; empty: all as the job says
  double memory_bytes = 0;             // that it may use of a device; 0: usable_bytes of it
  bool operator==(const Launch&) const = default;
};

/// A launch of the job alone: the schedule that its degrees imply, stages as the estimate assumes them.
Launch launch_of(const Job& job);

/// The same with so many layers on each stage, in the model's order: what a search has found.
Launch launch_of(const Job& job, const std::vector<int>& layers);

/// Why the job's schedule can't be made with its ranks, chunks and microbatches; "" when it can.
std::string_view misfit_of(const Job& job);

/// The same launch with everything that has no effect on it put to its default: tensor overlap without tensor
/// ranks, exchange settings without experts, and the like. Estimates don't change; two launches do the same when
/// their normal forms are equal.
Launch normalized(Launch launch);

/// Layers of each stage (pp × vpp of them, in the model's order) as the estimate assumes them: equal where they
/// divide, else the last stage, which bears the head, takes fewer.
std::vector<int> layers_of_stages(const Job& job);

/// "Ett|tt|tL" with repeats folded, or "" when the stages are equal.
std::string layout_text(const Job& job);
std::string layout_text(const Job& job, const std::vector<int>& layers);

}  // namespace heddle::search
