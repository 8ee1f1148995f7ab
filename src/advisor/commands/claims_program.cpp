// Claims that the step program itself answers: DeepSeek-V3's width, one dense layer and two with experts, 16 expert
// ranks, lowered as it would run and simulated with an Ascend 910B's rated figures. Hosts issue every op by itself,
// as an eager framework does.
#include "advisor/commands/claims.h"
#include "heddle/config/run_config.h"
#include "heddle/cost/accelerator.h"
#include "heddle/cost/device_time.h"
#include "heddle/cost/machine_profile.h"
#include "heddle/plan/mesh.h"
#include "heddle/plan/plan.h"
#include "heddle/runtime/dry_run.h"
#include "heddle/simulate/simulate.h"

namespace heddle::cli {

namespace {

double step_us(const std::function<void(plan::Plan&)>& change) {
  model::ModelConfig config = config::preset("deepseek-v3");
  config.num_hidden_layers = 3;
  config.first_k_dense_replace = 1;
  config.num_nextn_predict_layers = 0;
  plan::Plan plan;
  plan.mesh.dp = plan.mesh.ep = 16;
  plan.microbatches = 2;
  plan.sequences = 1;
  plan.sequence_length = 4096;
  plan.dtype = Dtype::bf16;
  plan.parallel.weave = plan::Weave::off;
  change(plan);

  const cost::Accelerator& device = *cost::accelerator_named("Ascend-910B");
  const cost::Sustained& sustained = cost::sustained(device);
  cost::MachineProfile profile;
  profile.bf16_flops_per_s = device.bf16_flops * sustained.bf16;
  profile.f32_flops_per_s = profile.bf16_flops_per_s / 4;
  profile.f64_flops_per_s = profile.f32_flops_per_s / 2;
  profile.copy_bytes_per_s = device.memory_bytes_per_s * sustained.memory;
  // Two nodes of eight: seven of fifteen others are near. The mean of both tiers by what each carries.
  const double near = 7.0 / 15, far = 8.0 / 15;
  profile.link_bytes_per_s = 1 / (near / device.inner.bytes_per_s + far / device.outer.bytes_per_s);
  profile.message_us = device.outer.latency_us;
  profile.launch_us = 2;

  const int64_t rows = plan.sequences * plan.sequence_length * config.num_experts_per_tok;
  // Blocks are woven for the same times that they are simulated with.
  plan.durations = [&](const ir::Listing& listing, const ir::Op& op) {
    return cost::op_us(profile, listing, op, ir::FixedRows(rows));
  };
  const plan::Lowered lowered = plan::lower(config, plan);
  simulate::SimulationInput input;
  const plan::Mesh mesh(plan.mesh);
  input.groups = simulate::groups_of(lowered.program, mesh);
  input.enqueue_us = device.host_us;
  input.ranks_differ = false;
  input.rows = runtime::balanced_rows(lowered.program);
  input.duration_us = [&](int, const ir::Issue& issue) {
    const ir::Listing& listing = lowered.program.listings[issue.listing];
    return issue.op->def->cost == nullptr ? 0 : cost::op_us(profile, listing, *issue.op, *issue.rows);
  };
  return simulate::simulate(lowered.program, input).step_us;
}

double gain(const std::function<void(plan::Plan&)>& on, const std::function<void(plan::Plan&)>& off) {
  return step_us(off) / step_us(on) - 1;
}

}  // namespace

double gain_of_list_reuse() {
  return gain([](plan::Plan& p) { p.parallel.reuse_lists = true; },
              [](plan::Plan& p) { p.parallel.reuse_lists = false; });
}

double gain_of_weaving() {
  return gain([](plan::Plan& p) { p.parallel.weave = plan::Weave::layers; },
              [](plan::Plan& p) { p.parallel.weave = plan::Weave::off; });
}

}  // namespace heddle::cli
