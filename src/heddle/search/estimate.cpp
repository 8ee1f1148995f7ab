#include "heddle/search/estimate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "heddle/cost/device_time.h"
#include "heddle/search/block_work.h"
#include "heddle/search/lowered_blocks.h"
#include "heddle/search/units.h"

namespace heddle::search {

namespace {

using cost::Group;

constexpr double kMostDevices = 1 << 26;

std::string impossible(const Job& j) {
  const plan::Degrees& l = j.mesh;
  for (const int n : {l.tp, l.pp, j.chunks, l.cp, l.dp, l.ep, l.etp})
    if (n < 1) return fmt::format("a degree below 1: {}", n);
  if (j.microbatch < 1 || j.global_batch < 1)
    return fmt::format("a batch below 1: {} sequences, {} at a time", j.global_batch, j.microbatch);
  if (!(j.sequence >= 1)) return fmt::format("a sequence below 1: {}", j.sequence);
  if (j.device.name.empty()) return "an unknown device";
  if (const std::string wrong = model::check_shape(j.shape); !wrong.empty()) return "the model's " + wrong;
  if (d(l.tp) * d(l.pp) * d(l.cp) * d(l.dp) > kMostDevices)
    return fmt::format("tp x pp x cp x dp ({} x {} x {} x {}) are too many devices", l.tp, l.pp, l.cp, l.dp);
  if (l.pp > j.shape.num_hidden_layers + 2)
    return fmt::format("more stages ({}) than layers ({})", l.pp, j.shape.num_hidden_layers);
  if (l.ep > 1 && j.shape.n_routed_experts == 0) return fmt::format("ep {} of a model without experts", l.ep);
  if (l.ep > std::max<int64_t>(1, j.shape.n_routed_experts))
    return fmt::format("ep {} is more than the {} experts", l.ep, j.shape.n_routed_experts);
  if (const int64_t there = static_cast<int64_t>(l.tp) * l.cp * l.dp; static_cast<int64_t>(l.ep) * l.etp > there) {
    return fmt::format(
        "ep x etp ({} x {}) is more than a stage's {} ranks (tp {} x cp {} x dp {}): lower ep or etp", l.ep, l.etp,
        there, l.tp, l.cp, l.dp);
  }
  if (j.software.lowered != nullptr) return j.software.lowered->refusal(j);
  return "";
}

constexpr double kHostEfficiency = 0.8;  // part of the host link's rate
constexpr double kHostUsable = 0.9;      // part of the host's memory: the rest is the system's and the data's

// Communication that `window` seconds of compute may hide.
double exposed(const Behaviour& b, double communication, double window) {
  return std::max(b.contention * communication, communication - b.reduce_window * window);
}

}  // namespace

double tokens_per_s_per_device(const Job& j, double step_s) {
  return j.global_batch * j.sequence / step_s / j.mesh.ranks();
}

double model_flops_utilization(const Job& j, double step_s) {
  return tokens_per_s_per_device(j, step_s) * model::training_flops_per_token(j.shape, j.sequence, j.with_mtp) /
         j.device.bf16_flops;
}

double usable_host_bytes(const cost::Accelerator& device) {
  return device.host_memory_bytes > 0 ? kHostUsable * device.host_memory_bytes
                                      : std::numeric_limits<double>::infinity();
}

double microbatches(const Job& j) {
  return std::max(1.0, std::ceil(static_cast<double>(j.global_batch) / j.mesh.dp / j.microbatch - 1e-9));
}

StageLayers stage_layers(double layers, int stages, int chunks, double head_layers) {
  if (stages <= 1) return {layers, layers};
  const double slots = static_cast<double>(stages) * chunks;
  if (std::fmod(layers, slots) == 0) return {layers / stages, layers / stages};
  if (std::fmod(layers + 2, slots) == 0) return {(layers + 2) / stages, (layers + 2) / stages - 1};
  const double most = std::ceil(layers / stages) + std::ceil(head_layers) + 1;
  for (double n = std::ceil(layers / stages); n < most; ++n) {
    const double last = std::max(0.0, std::floor(n - head_layers + 0.25));
    if (n * (stages - 1) + last >= layers) return {n, last};
  }
  return {most, 0};
}

Pipeline one_f_one_b() {
  static const Pipeline p = schedule::find_pipeline("1f1b");
  return p;
}

Pipeline interleaved() {
  static const Pipeline p = schedule::find_pipeline("interleaved");
  return p;
}

Pipeline interleaved_fused() {
  static const Pipeline p = schedule::find_pipeline("interleaved_fused");
  return p;
}

Pipeline pipeline_of(const Job& j) {
  if (j.pipeline != nullptr) return j.pipeline;
  return j.chunks > 1 ? interleaved() : one_f_one_b();
}

schedule::PipelineSize pipeline_size(const Job& j) {
  const int fixed = pipeline_of(j)->chunks();
  return {j.mesh.pp, fixed > 0 ? fixed : j.chunks, microbatches(j)};
}

Layers layers_of(const Job& j, const Prices& prices, const Behaviour& b) {
  Layers of;
  const auto add = [&](const BlockWork& w, BlockKind kind, int64_t count) {
    if (count == 0) return;
    const double share = d(count) / d(j.shape.num_hidden_layers);
    const Work backward = backward_of(prices, w, kind, j);
    const double forward_s = block_s(w.forward, j, b), backward_s = block_s(backward, j, b);
    of.forward_s += share * forward_s;
    of.layer_s += share * (forward_s + backward_s);
    if (backward.device_s() > 0) of.weight_s += share * backward_s * w.weights.device_s() / backward.device_s();
    of.layer += w.forward.scaled(share);
    of.layer += backward.scaled(share);
  };
  add(prices.attention, BlockKind::attention, j.shape.attention_blocks());
  add(prices.dense, BlockKind::dense, j.shape.dense_blocks());
  add(prices.moe, BlockKind::moe, j.shape.moe_blocks());
  add(prices.mamba, BlockKind::mamba, j.shape.mamba_blocks());
  // No more is hidden than there is compute to hide it.
  if (const double more = of.layer.hidden_exchange - of.layer.compute(); more > 0) {
    of.layer.hidden_exchange -= more;
    of.layer.exchange += more;
    of.layer_s += more;
    of.forward_s += more / 2;
  }

  of.head_s = block_s(prices.head.forward, j, b) + block_s(prices.head.backward, j, b);
  of.tail = prices.head.forward;
  of.tail += prices.head.backward;
  if (const double mtp = j.with_mtp ? d(j.shape.num_nextn_predict_layers) : 0; mtp > 0) {
    of.head_s = (1 + mtp) * of.head_s + mtp * of.layer_s;
    of.tail = of.tail.scaled(1 + mtp);
    of.tail += of.layer.scaled(mtp);
  }
  saved_bytes_of(j, prices, of);
  if (const PricedResidency& home = j.residency; j.software.offload_activations || home.crosses()) {
    // Activations go to the host behind the forward and come back behind the backward. Weights come for both, sums
    // of gradients come and go behind the backward.
    const model::Parameters p = model::parameters_of(j.shape);
    const LayerMemory layer = memory_parts(j, p, of).mean;
    const double rate = kHostEfficiency * j.device.host_bytes_per_s;
    const double kept = j.software.offload_activations ? layer.kept * kOffloaded / (1 - kOffloaded) : 0;
    const double out = exposed(b, std::max(kept, layer.weights_cross) / rate, of.forward_s),
                 back = exposed(b, (kept + layer.weights_cross + layer.gradients_cross) / rate,
                                of.layer_s - of.forward_s);
    // The head's backward follows its forward at once, so that one copy serves both; of the embedding the backward
    // needs the sums alone.
    const Cuts cuts = cuts_of(j, copies_of_shared(j).size);
    const double both = (home.weights.empty() ? 0 : 2.0 / cuts.weights) +
                        (home.gradients.empty() ? 0 : j.software.gradient_bytes / cuts.gradients);
    of.head_copies_s = exposed(b, both * p.head / j.mesh.tp / rate, of.head_s);
    of.embedding_copies_s = exposed(b, both * p.embedding / j.mesh.tp / rate, of.layer_s);
    of.head_s += of.head_copies_s;
    of.offload_out_s = out, of.offload_back_s = back;
    of.layer.traffic += out + back;
    of.layer_s += out + back;
    of.forward_s += out;
  }
  if (j.sharding.shard != passes::Shard::state)
    of.embedding_copies_s +=
        exposed(b, embedding_messages_s(j, model::parameters_of(j.shape).embedding, b), of.layer_s);
  return of;
}

Estimate estimate(const Job& j, const Behaviour& b) {
  Estimate e;
  e.reason = impossible(j);
  if (!e.reason.empty()) return e;
  const model::Parameters p = model::parameters_of(j.shape);
  return estimate(j, p, layers_of(j, prices_of(j, p, b), b), b);
}

Estimate estimate(const Job& j, const model::Parameters& p, const Layers& of, const Behaviour& b) {
  Estimate e;
  estimate_memory(j, memory_parts(j, p, of), e);
  estimate_time(j, p, of, b, e);
  return e;
}

void estimate_time(const Job& j, const model::Parameters& p, const Layers& of, const Behaviour& b, Estimate& e) {
  const plan::Degrees& l = j.mesh;
  const Software& sw = j.software;
  const schedule::Pipeline& pipeline = *pipeline_of(j);
  const schedule::PipelineSize size = pipeline_size(j);
  const int chunks = size.chunks;
  const int64_t n_attention = j.shape.attention_blocks(), n_dense = j.shape.dense_blocks(),
                n_moe = j.shape.moe_blocks(), n_mamba = j.shape.mamba_blocks();
  const Group data_group = copies_of_shared(j), expert_group = copies_of_expert(j);
  const double moe_shared = p.moe - p.moe_routed, routed_here = p.moe_routed / (l.ep * l.etp);
  const double layers = d(j.shape.num_hidden_layers), layer_s = of.layer_s, head_s = of.head_s;

  // With two routes two ranks share the work of two stages.
  const int shared = l.pp > 1 ? pipeline.routes() : 1;
  const StageLayers stage = stage_layers(layers, l.pp / shared, chunks, head_s / layer_s);
  const double full_s = stage.fullest * layer_s / shared, last_s = (stage.last * layer_s + head_s) / shared;
  const double slowest = std::max(full_s, last_s);
  Work busy = of.layer.scaled(last_s >= full_s ? stage.last : stage.fullest);
  if (last_s >= full_s) busy += of.tail;
  if (shared > 1) busy = busy.scaled(1.0 / shared);

  const double m = size.microbatches;
  Waterfall& t = e.time;
  t.products = m * busy.products;
  t.attention = m * busy.attention;
  t.traffic = m * busy.traffic;
  t.tensor = m * busy.tensor;
  t.exchange = m * busy.exchange;
  double alone_s = 0;  // exchange that no pair hides
  if (pipeline.pairs() && l.pp > 1) alone_s = pipeline.unpaired(size) * busy.hidden_exchange;
  t.context = m * busy.context;
  t.data = m * busy.data;
  t.launches = m * (slowest - busy.device_s()) + b.step_host_s;
  t.exchange += alone_s;

  if (l.pp > 1) {
    const double mean = (layers * layer_s + head_s) / l.pp;
    const double bytes = 2.0 * j.microbatch * j.sequence * d(j.shape.residual_width()) / l.cp;
    const double hop = cost::send_s(j.device, b.net, l.stage_ranks(), sw.sequence_parallel ? bytes / l.tp : bytes);
    const double forward = of.forward_s / layer_s * mean, weight = of.weight_s / layer_s * mean;
    t.bubble = pipeline.bubble(size, {forward, mean - forward - weight, weight});
    // Each microbatch is sent on and its gradient sent back, once a chunk; what isn't overlapped waits in line.
    const bool overlapped = pipeline.pairs() || (sw.overlap_pp && chunks > 1);
    t.pipeline = 2 * m * hop * chunks * (overlapped ? b.contention : 1) + 2 * (l.pp - 1) * hop;
  }

  // Gradients are reduced behind the last microbatch's backward, weights gathered behind the first one's forward.
  const double share = stage.fullest / layers;
  const double blocks =
      p.attention * d(n_attention) + p.dense * d(n_dense) + moe_shared * d(n_moe) + p.mamba * d(n_mamba);
  const double shared_here = (share * blocks + p.embedding + (l.pp == 1 ? p.head : 0)) / l.tp;
  const double experts_here = share * routed_here * d(n_moe);
  if (!sw.sharded_weights && !j.frozen_base) {
    const EndMessages end = end_messages(j, b, shared_here, experts_here);
    const double reduce = end.sums_s * (sw.reduce_scatter ? 1 : 2);
    const double gather = sw.sharded_states ? end.gathers_s : 0;
    const double stage_forward_s = stage.fullest * of.forward_s / shared;
    e.beside_s = sw.overlap_dp && (sw.pairs_overlap_gradients || !pipeline_of(j)->pairs())
                     ? exposed(b, reduce, full_s - stage_forward_s) +
                           (sw.overlap_gather ? exposed(b, gather, stage_forward_s) : gather)
                     : reduce + gather;
    t.data += e.beside_s;
  }
  if (const int inside = cost::ranks_inside(j.device, data_group);
      sw.sharded_weights && sw.sharded_inside && inside < data_group.size && !j.frozen_base) {
    // Each rank's part of the gradients is summed over the domains at the step's end.
    const Group domains{data_group.size / inside, data_group.stride * inside};
    const double sum = cost::all_reduce_s(j.device, b.net, domains, sw.reduce_bytes * shared_here / inside);
    e.beside_s += sum;
    t.data += sum;
  }
  const double trained = j.frozen_base ? 0.005 : 1;
  const bool sharded = sw.sharded_weights || sw.sharded_states;
  const double states =
      sharded ? shared_here / data_group.size + experts_here / expert_group.size : shared_here + experts_here;
  // AdamW reads and writes its states and writes the weight; gradients are cleared and their norm is read.
  t.optimizer = cost::traffic_s(j.device, trained * states * (2 * sw.state_bytes + 2 + sw.gradient_bytes));
  const Cuts shared_cuts = cuts_of(j, data_group.size), expert_cuts = cuts_of(j, expert_group.size);
  if (!sw.sharded_weights) {
    const double sums = shared_here / shared_cuts.gradients + experts_here / expert_cuts.gradients;
    t.optimizer += cost::traffic_s(j.device, trained * sums * 2 * sw.gradient_bytes);
  }
  if (const PricedResidency& home = j.residency; !(home == PricedResidency{})) {
    t.optimizer += trained * states * home.end_s;
    // New weights go to the host, and the norm and the update read sums from there.
    const auto crossing = [&](const Cuts& cuts) {
      return std::max(home.weights.empty() ? 0 : 2.0 / cuts.weights,
                      home.gradients.empty() ? 0 : 2 * sw.gradient_bytes / cuts.gradients);
    };
    t.optimizer += trained * (shared_here * crossing(shared_cuts) + experts_here * crossing(expert_cuts)) /
                   (kHostEfficiency * j.device.host_bytes_per_s);
  }
  e.beside_s += t.optimizer + b.step_host_s;
  const double sum = t.products + t.attention + t.traffic + t.launches + t.tensor + t.exchange + t.context +
                     t.pipeline + t.data + t.bubble + t.optimizer;
  t.jitter = sum * b.jitter * std::log2(std::max(1.0, l.ranks() / 8.0));
  e.step_s = sum + t.jitter;
  e.tokens_per_s_per_device = tokens_per_s_per_device(j, e.step_s);
  e.model_flops_utilization = model_flops_utilization(j, e.step_s);
}

}  // namespace heddle::search
