#include "advisor/answer/config_job.h"

#include <algorithm>
#include <optional>

#include "heddle/base/error.h"
#include "heddle/plan/context_ranks.h"
#include "heddle/planner/launch_settings.h"
#include "heddle/schedule/pipeline.h"

namespace heddle::advisor {

namespace {

// The levels that the words recompute; groups of some layers count by their part, which only whole layers have.
Recompute recompute_of(const std::vector<passes::OpGroup>& groups, int64_t layers,
                       std::vector<std::string>& notes) {
  using enum GroupName;
  constexpr passes::GroupSet kEstimated{layer, attention, norm, mla_up, activation, mlp, moe};
  Recompute all;
  double whole_layers = 0;
  for (const passes::OpGroup& group : groups) {
    const std::optional<GroupName> name = find_word<GroupName>(group.name);
    if (!name || !kEstimated.has(*name)) {
      notes.push_back(fmt::format("memory.recompute's '{}' is not estimated", group.name));
      continue;
    }
    const int64_t last = std::min<int64_t>(group.last_layer, layers - 1);
    const double count = static_cast<double>(std::max<int64_t>(0, last - group.first_layer + 1));
    if (*name == layer) whole_layers += count;
    if (*name != layer && count < static_cast<double>(layers))
      notes.push_back(fmt::format("memory.recompute's '{}' of some layers is estimated as of all", group.name));
    all.set(*name);
  }
  if (all.has(layer)) all.every = std::clamp(whole_layers / static_cast<double>(layers), 0.0, 1.0);
  return all;
}

}  // namespace

Launch launch_of_config(const config::RunConfig& config, const cost::Accelerator& device,
                        std::vector<std::string>& notes) {
  const plan::Choices& plan = config.plan;
  Launch launch;
  Job& job = launch.job;
  job.shape = model::shape_of(config.model, config.name);
  job.constants = std::make_shared<const std::vector<std::string>>(planner::settings_of_model(config.model));
  job.device = device;
  job.mesh = config.degrees();
  job.global_batch = static_cast<int>(config.train.global_batch);
  job.microbatch = static_cast<int>(config.train.microbatch);
  job.sequence = static_cast<double>(config.train.sequence_length);
  job.recompute = recompute_of(plan.memory.recompute, config.model.num_hidden_layers, notes);
  job.software.offload_activations = !plan.memory.offload.empty();
  job.software.captured = plan.device.graphs ? 1 : 0;
  job.sharding = {plan.parallel.shard, plan.parallel.shard_ranks};
  job.exchange = plan.parallel.exchange;
  job.frozen_base = plan.lora.rank > 0;
  static_cast<plan::Residency&>(job.residency) = plan.memory;
  if (job.residency.optimizer == plan::StateResidency::cheapest)
    job.residency.optimizer = plan::StateResidency::device;
  if (plan.parallel.context == model::Context::gather && job.mesh.cp > 1)
    notes.emplace_back("parallel.context \"gather\" is estimated as a ring");
  else
    job.context = plan.parallel.context;
  const int inner = plan::context_inner(config.model, plan.parallel, job.mesh);
  job.context_inner = inner > 1 ? inner : 0;
  if (config.device.dtype && *config.device.dtype != Dtype::bf16)
    notes.push_back(fmt::format("device.dtype {} is estimated as bf16", name_of(*config.device.dtype)));
  if (plan.memory.has_budget()) notes.emplace_back("memory.budget is not chosen here: `heddle inspect` does it");
  if (job.mesh.pp > 1) {
    const Pipeline pipeline = schedule::find_pipeline(plan.parallel.schedule);
    if (pipeline == nullptr)
      config_error("parallel.schedule '{}': a schedule from a file has no estimate; `heddle simulate` runs it",
                   plan.parallel.schedule.substr(0, 80));
    job.pipeline = pipeline;
    job.chunks = pipeline->chunks() > 0     ? 1
                 : plan.parallel.chunks > 0 ? plan.parallel.chunks
                                            : pipeline->least_chunks();
    if (plan.parallel.layout != "even") launch.layout = plan.parallel.layout;
  }
  const Pipeline pipeline = search::pipeline_of(job);
  job.software.overlap_exchange = job.mesh.ep > 1 && plan.parallel.weave == plan::Weave::pairs &&
                                  (job.mesh.pp == 1 || pipeline->pairs() || pipeline->outline().hides_exchange ||
                                   pipeline == interleaved_fused());
  launch.schedule = pipeline->name();
  if (config.device.memory_bytes > 0) launch.memory_bytes = static_cast<double>(config.device.memory_bytes);
  return search::normalized(launch);
}

}  // namespace heddle::advisor
