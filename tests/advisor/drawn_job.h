// Jobs drawn at random for tests of what is written for other trainers.
#pragma once

#include <random>

#include "heddle/cost/accelerator.h"
#include "heddle/model/shapes/shape_presets.h"
#include "heddle/schedule/generators/generators.h"
#include "heddle/search/launch.h"
#include "heddle/search/plans/context.h"

namespace heddle::advisor {

// Any job, sensible or not, of the kind that search draws.
inline Job drawn_job(std::mt19937& rng) {
  const auto pick = [&](auto... values) {
    const std::common_type_t<decltype(values)...> all[] = {
        static_cast<std::common_type_t<decltype(values)...>>(values)...};
    return all[rng() % sizeof...(values)];
  };
  const auto flip = [&] { return rng() % 2 == 0; };
  Job j;
  j.shape = *model::find_shape(pick("DeepSeek-V3", "Qwen3-30B-A3B", "Llama-3-8B", "Llama-3.1-405B", "Mixtral-8x7B",
                                    "GPT-3-175B", "GPT-OSS-20B", "DeepSeek-V2-Lite", "Nemotron-4-15B", "Kimi-K2",
                                    "Qwen3-32B", "BLOOM-176B"));
  if (flip()) j.shape.num_hidden_layers = pick(12, 16, 27, 61, 64);
  j.device = *cost::accelerator_named(pick("H100", "H800", "Ascend-910B", "GB200"));
  plan::Degrees& l = j.mesh;
  l.tp = pick(1, 1, 2, 4, 8);
  l.pp = pick(1, 1, 2, 4, 8, 16);
  j.chunks = l.pp > 1 ? pick(1, 1, 2, 3) : 1;
  l.cp = pick(1, 1, 2, 4);
  l.dp = pick(1, 2, 4, 16, 64);
  if (j.shape.n_routed_experts > 0) {
    l.ep = pick(1, 2, 4, 8, 64);
    l.etp = pick(1, 1, 2);
  }
  Software& s = j.software;
  s.sequence_parallel = rng() % 4 != 0;
  s.sharded_weights = rng() % 8 == 0;
  s.sharded_states = s.sharded_weights || rng() % 4 != 0;
  s.reduce_scatter = s.sharded_states;
  s.fused_attention = flip();
  s.fused_elementwise = flip();
  s.dropout = flip();
  s.fused_loss = flip();
  s.overlap_tp = flip();
  s.overlap_dp = flip();
  s.overlap_pp = flip();
  s.overlap_exchange = flip();
  j.exchange.topology = flip() ? ir::Topology::node : ir::Topology::plain;
  if (j.chunks == 1 && rng() % 16 == 0) j.pipeline = schedule::find_pipeline("dual_pipe");
  if (l.pp > 1 && rng() % 2 == 0) {
    j.pipeline = &schedule::pipelines()[rng() % schedule::pipelines().size()];
    if (j.pipeline == interleaved_fused()) s.overlap_exchange = true;
  }
  j.context = flip() ? model::Context::ulysses : model::Context::ring;
  if (l.cp == 4 && flip())
    j.context = pick(model::Context::hybrid, model::Context::double_ring), j.context_inner = 2;
  s.offload_activations = rng() % 4 == 0;
  s.captured = pick(0.0, 0.0, 0.5, 0.95);
  s.gradient_bytes = s.reduce_bytes = pick(2.0, 4.0);
  s.state_bytes = pick(12.0, 12.0, 10.0, 8.0, 7.0, 6.0);
  Recompute& c = j.recompute;
  c.set(GroupName::layer, rng() % 4 == 0);
  if (c.has(GroupName::layer) && flip()) c.every = 0.5;
  c.set(GroupName::attention, rng() % 4 == 0);
  c.set(GroupName::norm, rng() % 4 == 0);
  c.set(GroupName::mla_up, rng() % 4 == 0);
  c.set(GroupName::activation, rng() % 4 == 0);
  c.set(GroupName::mlp, rng() % 4 == 0);
  c.set(GroupName::moe, rng() % 4 == 0);
  j.precision = pick(cost::Precision::bf16, cost::Precision::bf16, cost::Precision::fp16, cost::Precision::fp8,
                     cost::Precision::mxfp8, cost::Precision::block8, cost::Precision::nvfp4);
  j.sequence = pick(2048, 4096, 8192);
  j.microbatch = pick(1, 2);
  j.global_batch = j.microbatch * l.dp * pick(1, 8, 24);
  j.imbalance = pick(1.0, 1.15);
  j.with_mtp = flip();
  if (j.shape.n_routed_experts > 0) j.exchange.capacity_factor = pick(0.0, 0.0, 1.0, 1.25);
  if (has_runs(j.context)) search::fit_context(j);  // those of hybrid divide the heads
  return j;
}

}  // namespace heddle::advisor
