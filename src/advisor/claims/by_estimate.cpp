// Claims that closed forms answer.
#include <algorithm>

#include "advisor/claims/computed.h"
#include "heddle/base/error.h"
#include "heddle/cost/collective.h"
#include "heddle/cost/device_time.h"
#include "heddle/model/shapes/shape_presets.h"
#include "heddle/search/block_work.h"
#include "heddle/search/estimate.h"

namespace heddle::advisor {

namespace {

using search::GroupName;
using search::Job;

Job job_of(const char* model, const char* device, const plan::Degrees& mesh, int global_batch, int chunks = 1) {
  Job j;
  j.shape = *model::find_shape(model);
  j.device = *cost::accelerator_named(device);
  j.mesh = mesh;
  j.chunks = chunks;
  j.global_batch = global_batch;
  return j;
}

search::Estimate possible(const Job& j) {
  search::Estimate e = search::estimate(j);
  HEDDLE_CHECK(e.reason.empty(), "a claim's job can't be: {}", e.reason);
  return e;
}

double speedup(const Job& with, const Job& without) { return possible(without).step_s / possible(with).step_s - 1; }
double memory(const Job& with, const Job& without) {
  return possible(with).peak_bytes / possible(without).peak_bytes - 1;
}

// DeepSeek-V3 as it was published: 2,048 H800, PP 16, EP 64.
Job published_deepseek() {
  Job j = job_of("DeepSeek-V3", "H800", {.dp = 128, .pp = 16, .ep = 64}, 15360);
  j.precision = cost::Precision::block8;
  return j;
}

// DeepSeek-V3 on nodes of eight C500.
Job deepseek_on_c500() { return job_of("DeepSeek-V3", "C500", {.dp = 128, .pp = 16, .ep = 32}, 128 * 64); }

bool fits(const Job& j) {
  constexpr double kUsable = 0.92;
  return possible(j).peak_bytes <= kUsable * j.device.memory_bytes;
}

// Masters and moments stream between host and device at the end of a step, each way at four fifths of the link.
void swap_states(Job& j) {
  constexpr double kLinkAttained = 0.8;
  j.residency.optimizer = plan::StateResidency::swap;
  j.residency.away_bytes = j.residency.host_bytes = j.software.state_bytes;
  j.residency.end_s = j.software.state_bytes / (kLinkAttained * j.device.host_bytes_per_s);
}

// This is what Megatron-LM does by default: 1F1B, states sharded over data ranks, fused kernels, a plain exchange
// that nothing hides. It computes again as little as fits: nothing, some modules, or whole layers.
Job everything_off() {
  Job j = published_deepseek();
  j.exchange.topology = ir::Topology::plain;
  for (const search::Recompute& recompute :
       {search::Recompute{}, search::Recompute{GroupName::norm, GroupName::mla_up, GroupName::activation},
        search::Recompute{GroupName::layer}}) {
    j.recompute = recompute;
    if (fits(j)) break;
  }
  return j;
}
// The quickest plan within this part of the baseline's memory, among schedules, words of recomputation, and states
// on the device or the host.
Job everything_on() {
  constexpr double kMemoryLeft = 0.7;
  const Job off = everything_off();
  const double most_bytes = kMemoryLeft * possible(off).peak_bytes;
  Job quickest;
  double least_s = 0;
  for (const char* schedule : {"1f1b", "zb_h1", "dual_pipe_v"}) {
    for (const search::Recompute& recompute :
         {search::Recompute{}, search::Recompute{GroupName::activation},
          search::Recompute{GroupName::norm, GroupName::activation},
          search::Recompute{GroupName::norm, GroupName::mla_up, GroupName::activation},
          search::Recompute{GroupName::norm, GroupName::mla_up, GroupName::activation, GroupName::permute},
          search::Recompute{GroupName::norm, GroupName::mla_up, GroupName::mlp, GroupName::moe},
          search::Recompute{GroupName::layer}}) {
      for (const bool away : {false, true}) {
        Job j = off;
        j.exchange.topology = ir::Topology::node;
        j.software.layer_overlap = search::LayerOverlap::all;
        j.pipeline = schedule::find_pipeline(schedule);
        j.recompute = recompute;
        if (away) swap_states(j);
        const search::Estimate e = search::estimate(j);
        if (!e.reason.empty() || e.peak_bytes > most_bytes || (least_s > 0 && e.step_s >= least_s)) continue;
        least_s = e.step_s;
        quickest = j;
      }
    }
  }
  HEDDLE_CHECK(least_s > 0, "no plan with everything on takes {} of the baseline's memory", kMemoryLeft);
  return quickest;
}

}  // namespace

// A token's row goes to the same slot of every node, then to the node's experts, and sums come back the same way.
double gain_of_merging() {
  Job plain = job_of("DeepSeek-V3", "Ascend-910B", {.dp = 64, .pp = 16, .ep = 16}, 4096);
  plain.exchange.topology = ir::Topology::plain;
  const model::Shape& s = plain.shape;
  const search::Behaviour behaviour;
  const double tokens = plain.sequence, row = 2.0 * static_cast<double>(s.hidden_size);
  const int in_node = plain.device.inner.ranks, nodes = plain.mesh.ep / in_node;
  cost::ExchangeLoad one{tokens, row, static_cast<int>(s.num_experts_per_tok),
                         static_cast<int>(s.reachable_groups()), false};
  const double before = cost::exchange_s(plain.device, behaviour.net, {plain.mesh.ep, 1}, one);
  // All nodes' tokens of this slot are here; half of each one's experts (of two nodes) stand on this node.
  cost::ExchangeLoad inside{tokens * nodes, row, static_cast<int>(s.num_experts_per_tok) / nodes, 0, false};
  const double after = cost::gather_s(plain.device, behaviour.net, {nodes, in_node}, tokens * nodes * row) +
                       cost::exchange_s(plain.device, behaviour.net, {in_node, 1}, inside);
  const search::Estimate e = possible(plain);
  // The bubble is made of the same layers: it shrinks in proportion.
  const double saved = e.time.exchange * (1 - after / before);
  const double layers = e.step_s - e.time.bubble;
  return e.step_s / (e.step_s - saved * (1 + e.time.bubble / layers)) - 1;
}

double gain_of_dual_pipe_v(bool over_overlap) {
  Job plain = published_deepseek(), v = plain;
  plain.chunks = 2;
  plain.software.overlap_exchange = over_overlap;
  // MindSpeed's and MXMACA's exchange is an all-to-all: every expert gets a row of its own.
  plain.exchange.topology = v.exchange.topology = ir::Topology::plain;
  v.pipeline = schedule::find_pipeline("dual_pipe_v");
  return speedup(v, plain);
}

// The largest saving over settings in which DualPipe fits: there its second copy of the weights weighs most.
double memory_of_dual_pipe_v() {
  double most = 0;
  for (const int ep : {8, 16, 32, 64}) {
    for (const search::Recompute& recompute :
         {search::Recompute{GroupName::norm, GroupName::mla_up, GroupName::activation},
          search::Recompute{GroupName::norm, GroupName::mla_up, GroupName::mlp, GroupName::moe},
          search::Recompute{GroupName::layer}}) {
      Job one = deepseek_on_c500();
      one.mesh.ep = ep;
      one.recompute = recompute;
      one.pipeline = schedule::find_pipeline("dual_pipe");
      swap_states(one);
      if (!fits(one)) continue;
      Job v = one;
      v.pipeline = schedule::find_pipeline("dual_pipe_v");
      most = std::min(most, memory(v, one));
    }
  }
  return most;
}

double memory_of_swap() {
  Job on = job_of("DeepSeek-V3", "Ascend-910B", {.dp = 32, .pp = 16, .ep = 32}, 15360);
  on.recompute = {GroupName::norm, GroupName::mla_up, GroupName::mlp, GroupName::moe};
  const Job off = on;
  swap_states(on);
  return memory(on, off);
}

double exchange_share() {
  Job j = job_of("DeepSeek-V3", "Ascend-910B", {.dp = 64, .pp = 16, .ep = 32}, 4096);
  j.exchange.topology = ir::Topology::plain;
  const search::Estimate e = possible(j);
  return e.time.exchange / (e.step_s - e.time.bubble);
}

double moe_over_dense() {
  const model::Shape& s = *model::find_shape("DeepSeek-V2-Lite");
  return model::total_parameters(s) / model::active_parameters(s);
}

// Per token, attention's with it. The dense layer is as wide as all experts that a token passes through.
double activations_of_experts() {
  const model::Shape& s = *model::find_shape("DeepSeek-V2-Lite");
  model::Shape dense = s;
  dense.intermediate_size = s.moe_intermediate_size * (s.num_experts_per_tok + s.n_shared_experts);
  const search::SavedBytes experts = search::saved_bytes(s, {}, 4096), wide = search::saved_bytes(dense, {}, 4096);
  return (experts.attention + experts.moe) / (wide.attention + wide.dense) - 1;
}

double gain_of_balance(double sequence, double imbalance) {
  Job j = job_of("Qwen3-235B-A22B", "H100", {.tp = 2, .dp = 16, .pp = 8, .ep = 32}, 512, 4);
  j.sequence = sequence;
  j.software.overlap_exchange = true;
  Job uneven = j;
  uneven.imbalance = imbalance;
  return speedup(j, uneven);
}

// Products run at 0.45 of the peak; a node's links to others are those of all its devices.
double gain_of_copies(const char* model, const char* device, double imbalance) {
  Job uneven = job_of(model, device, {.tp = 2, .dp = 16, .pp = 8, .ep = 32}, 512, 4);
  uneven.software.overlap_exchange = true;
  const model::Shape& s = uneven.shape;
  const auto on_node = static_cast<int64_t>(uneven.device.inner.ranks);
  const double after =
      imbalance_with_replicas({.ranks = uneven.mesh.ep,
                               .ranks_on_node = on_node,
                               .experts = s.n_routed_experts,
                               .hidden = static_cast<int64_t>(s.hidden_size),
                               .width = s.moe_intermediate_size,
                               .rows = static_cast<int64_t>(uneven.sequence) * s.num_experts_per_tok,
                               .flops_per_s = 0.45 * uneven.device.flops(uneven.precision),
                               .within_bytes_per_s = uneven.device.inner.bytes_per_s,
                               .across_bytes_per_s = uneven.device.outer.bytes_per_s * static_cast<double>(on_node),
                               .imbalance = imbalance});
  Job copied = uneven;
  copied.imbalance = after;
  uneven.imbalance = imbalance;
  return speedup(copied, uneven);
}

double memory_of_light_recompute() {
  Job light = deepseek_on_c500();
  const Job off = light;
  light.recompute = {GroupName::activation, GroupName::permute, GroupName::router};
  return memory(light, off);
}
double time_of_light_recompute() {
  Job light = deepseek_on_c500();
  const Job off = light;
  light.recompute = {GroupName::activation, GroupName::permute, GroupName::router};
  return possible(light).step_s / possible(off).step_s - 1;
}

// The up and gate product of a rank's 32 experts, as many rows each: one launch of whole waves, or one for each
// expert.
double gain_of_one_launch() {
  Job j = deepseek_on_c500();
  j.mesh.ep = 8;
  const model::Shape& s = j.shape;
  const auto experts = static_cast<double>(s.n_routed_experts) / j.mesh.ep;
  const double rows = j.sequence * static_cast<double>(s.num_experts_per_tok) / experts;
  const double n = 2.0 * static_cast<double>(s.moe_intermediate_size), k = static_cast<double>(s.hidden_size);
  const double launch_s = 1e-6 * j.device.host_us;
  const double each = std::max(launch_s, cost::product_s(j.device, j.precision, rows, n, k));
  return experts * each / cost::product_s(j.device, j.precision, rows, n, k, experts) - 1;
}

double memory_of_everything() { return memory(everything_on(), everything_off()); }
double gain_of_everything() { return speedup(everything_on(), everything_off()); }

}  // namespace heddle::advisor
