// Step time and peak memory of a training job, from closed forms. Auto Search evaluates them thousands of times a
// second.
//
// Time: each kind of block is priced once (products by shape, attention, traffic, launches, collectives). Blocks
// add up to stages, stages to a pipeline with the bubble of its schedule. Gradients, optimizer and what the overlap
// doesn't hide are added. Memory: static bytes by bucket, saved activations × microbatches in flight, the head,
// buffers.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "heddle/cost/accelerator.h"
#include "heddle/cost/collective.h"
#include "heddle/model/context.h"
#include "heddle/model/dispatcher.h"
#include "heddle/model/shapes/shape.h"
#include "heddle/plan/mesh.h"
#include "heddle/schedule/pipeline.h"
#include "heddle/search/plans/residency.h"
#include "heddle/search/plans/sharding.h"
#include "heddle/search/saved_bytes.h"

namespace heddle::search {

/// A schedule of schedule/generators. Null, the usual one: interleaved of several chunks, else 1f1b.
using Pipeline = const schedule::Pipeline*;

class LoweredBlocks;

/// Work that hides an exchange of rows within a microbatch: shared experts' products, and for `all` the weight
/// gradients of routed ones too.
enum class LayerOverlap : uint8_t { none, shared, all };

/// Behaviour of the training software; the defaults are a current Megatron-Core's.
struct Software {
  bool fused_attention = true;
  bool sequence_parallel = true;
  bool sharded_states = true;      // ZeRO-1 / distributed optimizer
  bool sharded_weights = false;    // ZeRO-3 / FSDP
  bool sharded_inside = false;     // with that: within the fast domain only, copies beyond it (HSDP)
  bool sharded_gradients = false;  // ZeRO-2: a chunk's gradients are spread once all its backwards have run, where
                                   // these run in one go (interleaved, no more microbatches than stages)
  bool reduce_scatter = true;      // else gradients are reduced on all ranks
  bool fused_elementwise = true;
  bool dropout = false;
  bool fused_loss = true;
  bool overlap_tp = true, overlap_dp = true, overlap_pp = true;
  bool overlap_gather = true;           // with overlap_dp: the gather of weights too, not the gradients alone
  bool pairs_overlap_gradients = true;  // schedules of pairs too: overlap_dp holds for them
  bool overlap_exchange = false;        // the exchange of one microbatch with another's compute
  LayerOverlap layer_overlap = LayerOverlap::none;
  bool narrow_gates = false;  // experts keep the inputs of SwiGLU in 8 bits
  bool even_stages = false;   // only; else layers are spread by their prices
  bool offload_activations = false;
  double launch_factor = 1;    // a launch takes so many times the device's usual host time
  double attention_speed = 1;  // speed of fused attention against today's kernels
  double captured = 0;         // part of the launches that CUDA graphs replace
  double gradient_bytes = 4;   // accumulated gradient
  double reduce_bytes = 4;     // gradient on the wire
  double state_bytes = 12;     // master weight and moments
  // Memory that a report counts beyond live tensors: 1 and 0 where it is the allocator's own count of those.
  double reserve = 1;
  double context_bytes = 0;
  /// The lowered blocks of Heddle. Null: other software, by closed forms. It must outlive every user of the job.
  const LoweredBlocks* lowered = nullptr;
  bool operator==(const Software&) const = default;
};

struct Job {
  model::Shape shape;
  cost::Accelerator device;
  plan::Degrees mesh;
  int chunks = 1;  // stages a rank, where the schedule leaves it open
  Pipeline pipeline = nullptr;
  Software software;
  Recompute recompute;
  PricedResidency residency;
  Sharding sharding;  // of Heddle; other software says its own
  /// Dispatcher of the experts' rows: plain or once a node, replicas of hot experts, a capacity.
  model::Dispatcher exchange{.topology = ir::Topology::node};
  model::Context context = model::Context::ring;  // attention over cp; closed forms take gather as ring
  int context_inner = 0;                          // of ways that have runs of neighbours: their length
  cost::Precision precision = cost::Precision::bf16;
  double sequence = 4096;
  int microbatch = 1;
  int global_batch = 1;
  double imbalance = 1;         // rows of the fullest expert rank over the mean
  double memory_imbalance = 0;  // imbalance for memory, which must hold the worst case; 0: as imbalance
  bool frozen_base = false;     // LoRA: no weight gradients of the base model
  bool with_mtp = true;
  /// Settings of Heddle for what no estimate needs and its program does (rates, epsilons, weights of losses); null:
  /// none. Two jobs with lists of their own differ.
  std::shared_ptr<const std::vector<std::string>> constants;
  bool operator==(const Job&) const = default;
};

/// The few constants of behaviour, the same for every device and job.
struct Behaviour {
  cost::NetworkEfficiency net;
  double tp_hidden = 0.416;        // part of tensor collectives, with overlap
  double exchange_hidden = 0.401;  // part of the exchange, with overlap
  double reduce_window = 1;        // part of a microbatch's backward that may hide the gradients' reduction
  double contention = 0.0548;      // hidden communication still costs the compute beside it this part of its time
  double launch_sharpness = 1.55;  // exponent of the blend of device and host time
  double jitter = 0.00611;         // part of a step, for each doubling of the ranks beyond 8
  double traffic_scale = 1.14;
  double eager_traffic = 1;  // element-wise work that is not fused moves so many times the bytes
  double host_scale = 1.2;
  double expert_ops = 15.2;     // launches of each expert in it
  double moe_ops = 131;         // launches of a mixture block, each way
  double step_host_s = 0.0546;  // host time beside a step's microbatches: optimizer, norms, logging
  double scan_rate = 0.01;      // part of the matrix peak that a Mamba scan reaches
  double scan_traffic = 2.08;
};

/// Parts of a step's time, seconds on the slowest stage; they add up to step_s.
struct Waterfall {
  double products = 0, attention = 0, traffic = 0, launches = 0;
  double tensor = 0, exchange = 0, context = 0, pipeline = 0, data = 0;
  double bubble = 0, optimizer = 0, jitter = 0;

  /// Communication that is exposed.
  double communication() const { return tensor + exchange + context + pipeline + data; }
  double sum() const {
    return products + attention + traffic + launches + communication() + bubble + optimizer + jitter;
  }
};

struct Estimate {
  double step_s = 0;
  double tokens_per_s_per_device = 0;
  double model_flops_utilization = 0;
  Waterfall time;
  double beside_s = 0;  // part of step_s without jitter: gradients and weights over data ranks, optimizer, host
  double peak_bytes = 0, static_bytes = 0, activation_bytes = 0;
  double host_bytes = 0;  // persistent bytes of the rank that keeps most there
  std::string reason;     // why there is no estimate; "" when there is one
};

/// Fast: tens of microseconds. An impossible job gives an estimate with a reason.
Estimate estimate(const Job& job, const Behaviour& behaviour = {});

/// Returns the job's schedule, the usual one by what it stands for.
Pipeline pipeline_of(const Job& job);
/// Schedules that other trainers have, as rows of schedule/generators.
Pipeline one_f_one_b();
Pipeline interleaved();
Pipeline interleaved_fused();

/// Speed of a step of so many seconds.
double tokens_per_s_per_device(const Job& job, double step_s);
double model_flops_utilization(const Job& job, double step_s);

/// Host memory that a plan may use for each device; infinite where that is not known.
double usable_host_bytes(const cost::Accelerator& device);

/// True if a row crosses to a node once, for all experts there.
inline bool once_a_node(const Job& job) { return job.exchange.topology == ir::Topology::node; }

/// Microbatches of a step on each pipeline.
double microbatches(const Job& job);
/// Ranks, chunks and microbatches of the job's pipeline.
schedule::PipelineSize pipeline_size(const Job& job);

/// Layers of the fullest stage and of the last one, which bears the head. Stages are even where that divides, also
/// with embedding and head counted as a layer each; else the last stage takes fewer, its head being worth
/// `head_layers`.
struct StageLayers {
  double fullest = 0, last = 0;
};
StageLayers stage_layers(double layers, int stages, int chunks, double head_layers);

}  // namespace heddle::search
