// Claims that the step program itself answers: lowered as it would run, and simulated at a device's rated figures.
// DeepSeek-V3's and Qwen3's layers have their full width; hosts issue every op by itself, as an eager framework
// does. LLaMA-2-70B's are priced as `./dev bench tp_overlap`, `copy_engine` and `memory` pace them.
#include <algorithm>
#include <functional>

#include "advisor/claims/computed.h"
#include "heddle/config/run_config.h"
#include "heddle/cost/accelerator.h"
#include "heddle/cost/device_time.h"
#include "heddle/cost/machine_profile.h"
#include "heddle/passes/host/offload.h"
#include "heddle/passes/recompute.h"
#include "heddle/plan/costs/durations.h"
#include "heddle/plan/mesh.h"
#include "heddle/plan/plan.h"
#include "heddle/runtime/dry_run.h"
#include "heddle/runtime/predict.h"
#include "heddle/simulate/simulate.h"

namespace heddle::advisor {

namespace {

using Change = std::function<void(plan::Plan&)>;

// A device, and the part of a rank's messages that stays in its fast domain.
struct Place {
  const char* device;
  double near;
};
constexpr Place kTwoNodes{"Ascend-910B", 7.0 / 15};  // 16 ranks: seven of fifteen others are near
constexpr Place kOneNode{"C500", 1};

cost::MachineProfile profile_of(const Place& place) {
  const cost::Accelerator& device = *cost::accelerator_named(place.device);
  const cost::Sustained& sustained = cost::sustained(device);
  cost::MachineProfile profile;
  profile.bf16_flops_per_s = device.bf16_flops * sustained.bf16;
  profile.f32_flops_per_s = profile.bf16_flops_per_s / 4;
  profile.f64_flops_per_s = profile.f32_flops_per_s / 2;
  profile.copy_bytes_per_s = device.memory_bytes_per_s * sustained.memory;
  // The mean of both tiers by what each carries.
  profile.link_bytes_per_s =
      1 / (place.near / device.inner.bytes_per_s + (1 - place.near) / device.outer.bytes_per_s);
  profile.message_us = place.near < 1 ? device.outer.latency_us : device.inner.latency_us;
  profile.launch_us = 2;
  return profile;
}

// Returns the bytes that an element-wise op of an eager framework moves for each that the fused one does. A norm in
// fp32 by squares, mean, root and two products moves 32 where 4 suffice. A rotation by halves and a concatenation
// moves 20 for 4, a loss over whole logits 40 for 6. A norm's gradient, by the same steps backwards, moves 68 for
// 6: 12 for the weight and its sum, 6 to get to fp32, 24 for the product, 8 for the square, 12 to add, 6 to get
// back. The optimizer counts as a fused one.
double eager_times(const ir::Op& op) {
  if (op.kind() == "rms_norm") return 32.0 / 4;
  if (op.kind() == "rms_norm_dgrad") return 68.0 / 6;
  if (op.kind() == "cross_entropy" || op.kind() == "cross_entropy_dgrad") return 40.0 / 6;
  if (op.kind() != "rope") return 1;
  const auto part = [&](const char* name) { return static_cast<double>(op.attributes.integer(name)); };
  return 1 + (20.0 / 4 - 1) * part("rope_dim") / part("head_dim");
}

// Layers of a model's width with their share of the embedding and the head, and a plan of 16-bit numbers.
class Layers {
 public:
  Layers(const char* preset, int layers, int dense, int ranks, const Place& place)
      : config_(config::preset(preset)), place_(place) {
    config_.vocab_size = config_.vocab_size * layers / config_.num_hidden_layers / 64 * 64;
    config_.num_hidden_layers = layers;
    config_.first_k_dense_replace = dense;
    config_.num_nextn_predict_layers = 0;
    plan_.mesh.dp = plan_.mesh.ep = ranks;
    plan_.microbatches = 8;  // so that the update and the gradients' sums weigh as little as in a long step
    plan_.sequences = 1;
    plan_.sequence_length = 4096;
    plan_.dtype = Dtype::bf16;
    plan_.parallel.weave = plan::Weave::off;
  }
  Layers with(const Change& change) const {
    Layers changed = *this;
    change(changed.plan_);
    return changed;
  }
  /// Messages of the exchange take no time.
  Layers free() const {
    Layers changed = *this;
    changed.free_ = true;
    return changed;
  }

  /// Element-wise ops pass over memory as often as an eager framework's.
  Layers eager() const {
    Layers changed = *this;
    changed.eager_ = true;
    return changed;
  }

  double step_us() const {
    const plan::Lowered lowered = lower();
    simulate::SimulationInput input;
    const plan::Mesh mesh(plan_.mesh);
    input.groups = simulate::groups_of(lowered.program, mesh);
    input.enqueue_us = cost::accelerator_named(place_.device)->host_us;
    input.ranks_differ = false;
    input.rows = runtime::balanced_rows(lowered.program);
    const cost::MachineProfile profile = profile_of(place_);
    input.duration_us = [&](int, const ir::Issue& issue) {
      const ir::Listing& listing = lowered.program.listings[issue.listing];
      if (free_ && ir::is_exchange(issue.op->def->moves)) return 0.0;
      const double us = cost::op_us(profile, listing, *issue.op, *issue.rows);
      const double more = eager_ ? eager_times(*issue.op) - 1 : 0;
      if (more <= 0) return us;
      return us +
             1e6 * more * issue.op->def->cost(listing, *issue.op, *issue.rows).bytes / profile.copy_bytes_per_s;
    };
    return simulate::simulate(lowered.program, input).step_us;
  }
  /// Returns what a rank's exchanges take in a step, one after the other; the mean of the stages.
  double exchanges_us() const {
    const plan::Lowered lowered = lower();
    const cost::MachineProfile profile = profile_of(place_);
    double sum = 0;
    for (const ir::Listing& listing : lowered.program.listings) {
      for (const ir::Op& op : listing.ops) {
        if (ir::is_exchange(op.def->moves)) sum += cost::op_us(profile, listing, op, ir::FixedRows(rows()));
      }
    }
    return sum * plan_.microbatches / plan_.mesh.pp;
  }
  /// The part of the exchanges that does not lengthen the step.
  double hidden() const { return 1 - (step_us() - free().step_us()) / exchanges_us(); }
  plan::Lowered lower() const {
    plan::Plan plan = plan_;
    // Blocks are woven for the same times that they are simulated with.
    plan.durations = [profile = profile_of(place_), rows = rows()](const ir::Listing& listing, const ir::Op& op) {
      return cost::op_us(profile, listing, op, ir::FixedRows(rows));
    };
    return plan::lower(config_, plan);
  }

 private:
  int64_t rows() const { return plan_.sequences * plan_.sequence_length * config_.num_experts_per_tok; }

  model::ModelConfig config_;
  plan::Plan plan_;
  Place place_;
  bool free_ = false, eager_ = false;
};

double gain(const Layers& on, const Layers& off) { return off.step_us() / on.step_us() - 1; }

// Two layers with experts: 58 of DeepSeek-V3's 61 have them.
Layers across_nodes() { return {"deepseek-v3", 2, 0, 16, kTwoNodes}; }
Layers in_a_node() { return {"deepseek-v3", 2, 0, 8, kOneNode}; }

void woven(plan::Plan& p) { p.parallel.weave = plan::Weave::layers; }
void unfused(plan::Plan& p) { p.fusions.clear(); }

// Four layers of LLaMA-2-70B on H100s that reach 40 % of their products and 80 % of their memory's rate.
model::ModelConfig llama() {
  model::ModelConfig c;
  c.attention = model::ModelConfig::Attention::grouped;
  c.vocab_size = 32000;
  c.hidden_size = 8192;
  c.num_hidden_layers = c.first_k_dense_replace = 4;
  c.intermediate_size = 28672;
  c.num_attention_heads = 64;
  c.num_key_value_heads = 8;
  c.head_dim = 128;
  c.max_position_embeddings = 4096;
  return c;
}
plan::Plan on_h100(int microbatches) {
  const cost::Accelerator& device = *cost::accelerator_named("H100");
  plan::Plan plan;
  plan.sequences = 1;
  plan.sequence_length = 4096;
  plan.microbatches = microbatches;
  plan.dtype = Dtype::bf16;
  plan.rates.flops_per_us = 0.4 * device.bf16_flops * 1e-6;
  plan.rates.bytes_per_us = 0.8 * device.memory_bytes_per_s * 1e-6;
  plan.rates.host_bytes_per_us = 55e3;  // PCIe Gen 5
  return plan;
}

// tp 8 by NVLink: forward and backward alone. `free`: messages take no time.
double tensor_us(plan::TpOverlap overlap, bool engine, bool free) {
  plan::Plan plan = on_h100(2);
  plan.mesh.tp = 8;
  plan.rates.message_bytes_per_us = 360e3;  // four fifths of what is rated
  plan.rates.message_latency_us = 3;
  plan.rates.message_share = engine ? 0 : 20.0 / 132;  // multiprocessors that move a message
  plan.parallel.tp_overlap = overlap;
  const plan::Lowered lowered = plan::lower(llama(), plan);
  const passes::Durations us = plan::nominal_durations(plan.parallel.exchange, plan.rates);
  simulate::SimulationInput input;
  input.groups = simulate::groups_of(lowered.program, plan::Mesh(plan.mesh));
  input.ranks_differ = false;
  input.duration_us = [&](int, const ir::Issue& issue) {
    const ir::Op& op = *issue.op;
    if (ir::once_a_step(op.phase) || (free && ir::communicates(*op.def))) return 0.0;
    return us(lowered.program.listings[static_cast<size_t>(issue.listing)], op);
  };
  if (!engine) input.takes = [&](int, const ir::Issue& issue) { return plan::units_taken(*issue.op, plan.rates); };
  return simulate::simulate(lowered.program, input).step_us;
}

double offload_us(const char* recompute, const char* offload) {
  model::ModelConfig config = llama();
  config.vocab_size /= 20;  // the layers' share of the embedding and the head
  plan::Plan plan = on_h100(4);
  plan.memory.recompute = passes::recompute_groups(recompute);
  plan.memory.offload = passes::offload_groups(offload);
  const plan::Lowered lowered = plan::lower(config, plan);
  const passes::Durations us = plan::nominal_durations(plan.parallel.exchange, plan.rates);
  const int64_t bytes = runtime::predict_memory(lowered.program, 0, "host").reserved_bytes;
  simulate::SimulationInput input;
  input.scratch_bytes = runtime::kernel_scratch(lowered.program, "host");
  input.capacity_bytes = ir::storage_bytes(bytes + bytes / 16);
  input.enqueue_us = 2;
  input.steps = 2;
  input.duration_us = [&](int, const ir::Issue& issue) {
    return us(lowered.program.listings[static_cast<size_t>(issue.listing)], *issue.op);
  };
  return simulate::simulate(lowered.program, input).step_us;
}

}  // namespace

double gain_of_list_reuse() {
  const Layers on = across_nodes();
  return gain(on, on.with([](plan::Plan& p) { p.parallel.reuse_lists = false; }));
}

double stalls_of_a_layer() {
  constexpr int kLayers = 2;
  const plan::Lowered lowered = across_nodes().lower();
  const auto& ops = lowered.program.listings[0].ops;
  return static_cast<double>(
             std::count_if(ops.begin(), ops.end(), [](const ir::Op& op) { return op.def->host_stall; })) /
         kLayers;
}

double hidden_in_layer() { return in_a_node().with(woven).hidden(); }
double hidden_in_layer_over_none() { return hidden_in_layer() / in_a_node().hidden(); }
// Nothing of the exchanges is hidden where compute stands still meanwhile.
double gain_of_weaving() {
  const Layers one = in_a_node();
  return (one.free().step_us() + one.exchanges_us()) / one.with(woven).step_us() - 1;
}

double hidden_by_pairs(const char* device) {
  constexpr int kStages = 4, kLayers = 8, kMicrobatches = 16, kExpertRanks = 16;
  const int domain = cost::accelerator_named(device)->inner.ranks;
  const double near = domain >= kExpertRanks ? 1 : kTwoNodes.near;
  return Layers("deepseek-v3", kLayers, 0, kExpertRanks, {device, near})
      .with([](plan::Plan& p) {
        p.mesh.pp = kStages;
        p.microbatches = kMicrobatches;
        p.parallel.schedule = "dual_pipe_v";
        p.parallel.weave = plan::Weave::pairs;
      })
      .hidden();
}

// The published job has one pipeline stage. Pairs of microbatches need two chunks of it.
double gain_of_overlap() {
  const Layers one = Layers("qwen3-30b-a3b", 8, 0, 16, {"H100", kTwoNodes.near}).with([](plan::Plan& p) {
    p.parallel.exchange.topology = ir::Topology::plain;
    p.microbatches = 16;
  });
  const Layers paired = one.with([](plan::Plan& p) {
    p.parallel.schedule = "interleaved_fused";
    p.parallel.chunks = 2;
    p.parallel.weave = plan::Weave::pairs;
  });
  return (one.free().step_us() + one.exchanges_us()) / paired.step_us() - 1;
}

double gain_of_fusions() { return gain(in_a_node(), in_a_node().with(unfused).eager()); }
double memory_of_fusions() {
  const auto bytes = [](const Layers& of) {
    const plan::Lowered lowered = of.lower();
    const runtime::MemoryPrediction memory = runtime::predict_memory(lowered.program, 0, "host");
    return static_cast<double>(memory.peak_live_bytes - memory.persistent_bytes);
  };
  return bytes(in_a_node()) / bytes(in_a_node().with(unfused)) - 1;
}

double gain_of_tensor_overlap(bool fused, bool engine) {
  const plan::TpOverlap way = fused ? plan::TpOverlap::fused : plan::TpOverlap::off;
  return tensor_us(plan::TpOverlap::off, !engine, false) / tensor_us(way, true, false) - 1;
}
double gain_of_copy_engine() {
  return tensor_us(plan::TpOverlap::tiles, false, false) / tensor_us(plan::TpOverlap::tiles, true, false) - 1;
}
double communication_of_fused_products() {
  const double free = tensor_us(plan::TpOverlap::off, true, true);
  return (tensor_us(plan::TpOverlap::fused, true, false) - free) /
             (tensor_us(plan::TpOverlap::off, true, false) - free) -
         1;
}

double gain_of_offload() { return offload_us("norm, mla_up, mlp", "") / offload_us("norm", "input, layer") - 1; }

}  // namespace heddle::advisor
