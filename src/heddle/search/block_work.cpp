#include "heddle/search/block_work.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "heddle/cost/device_time.h"
#include "heddle/search/lowered_blocks.h"
#include "heddle/search/plans/replicas.h"
#include "heddle/search/units.h"

namespace heddle::search {

namespace {

using cost::Group;
using cost::Precision;

// Bytes moved to bring an element into the operand type of a product, in both orientations: amax pass, read,
// writes.
double cast_bytes(Precision p) {
  switch (p) {
    case Precision::fp8: return 5;
    case Precision::mxfp8: return 4.5;
    case Precision::block8: return 5;
    case Precision::nvfp4: return 6;
    default: return 0;
  }
}

}  // namespace

Work& Work::operator+=(const Work& w) {
  products += w.products, attention += w.attention, traffic += w.traffic;
  tensor += w.tensor, exchange += w.exchange, context += w.context, data += w.data;
  ops += w.ops, hidden_exchange += w.hidden_exchange;
  return *this;
}

Work Work::scaled(double f) const {
  return {products * f, attention * f, traffic * f, tensor * f,         exchange * f,
          context * f,  data * f,      ops * f,     hidden_exchange * f};
}

Pricing::Pricing(const Job& job, const Behaviour& behaviour)
    : j_(job),
      b_(behaviour),
      l_(job.mesh),
      s_(job.shape),
      sw_(job.software),
      h_(d(job.shape.hidden_size)),
      tokens_(job.microbatch * job.sequence / job.mesh.cp),
      rows_(sw_.sequence_parallel ? tokens_ / l_.tp : tokens_),
      flops_(model::forward_flops(s_, job.sequence)) {}

void Pricing::linear(BlockWork& block, double m, double n, double k, double groups, bool narrow) const {
  const Precision p = narrow ? j_.precision : Precision::bf16;
  block.forward.products += cost::product_s(j_.device, p, m, n, k, groups);
  block.backward.products += cost::product_s(j_.device, p, m, k, n, groups);
  // Every microbatch adds to the accumulated gradient: in the product's epilogue where that is fused.
  if (!j_.frozen_base) {
    Work weights;
    const double accumulated = sw_.sharded_weights ? 2 : 2 * sw_.gradient_bytes + (sw_.fused_elementwise ? 0 : 4);
    weights.products = cost::product_s(j_.device, p, k, n, m, groups);
    weights.traffic = cost::traffic_s(j_.device, accumulated * k * n * groups);
    block.backward += weights;
    block.weights += weights;
    block.weights.ops += 1;
  }
  // A low-rank adapter reads the input once more and adds its part to the output, and likewise backward.
  if (j_.frozen_base && narrow && groups == 1) {
    moved(block, m * (2 * k + 6 * n), m * (6 * k + 2 * n));
    block.forward.ops += 3;
    block.backward.ops += 5;
  }
  block.forward.ops += 1;
  block.backward.ops += 2;
  if (cast_bytes(p) > 0) {
    // Casts that are not fused read the operand anew for each of its two orientations.
    const double casts = cast_bytes(p) * (sw_.fused_elementwise ? 1 : 2);
    moved(block, casts * m * k * groups, casts * m * n * groups);
    block.forward.ops += 1;
    block.backward.ops += 1;
  }
}

void Pricing::moved(BlockWork& block, double forward_bytes, double backward_bytes) const {
  block.forward.traffic += b_.traffic_scale * cost::traffic_s(j_.device, forward_bytes);
  block.backward.traffic += b_.traffic_scale * cost::traffic_s(j_.device, backward_bytes);
}

void Pricing::elementwise(BlockWork& block, double forward_bytes, double backward_bytes) const {
  const double more = sw_.fused_elementwise ? 1 : b_.eager_traffic;
  moved(block, more * forward_bytes, more * backward_bytes);
}

void Pricing::norm_and_residual(BlockWork& block) const {
  // Forward: residual read, sum written, norm's output written; dropout reads and writes a mask beside it.
  const double dropout = sw_.dropout ? 3 : 0;
  elementwise(block, rows_ * (10 + dropout) * h_, rows_ * (14 + dropout) * h_);
  block.forward.ops += 3;
  block.backward.ops += 4;
  if (!s_.has_streams()) return;
  // In place of the sum: the streams are read twice by their map and by what it weighs, then read and written by
  // the block. Backward, both gradients pass over them, and that of the map is added.
  const double streams = d(s_.residual_width());
  linear(block, rows_, d(s_.stream_weights()), streams, 1, false);
  if (s_.has_gated_streams()) {
    const double rank = d(s_.hyper_connections_rank);
    linear(block, rows_, rank, streams);
    linear(block, rows_, streams, rank);
  }
  moved(block, rows_ * 2 * 4 * streams, rows_ * 2 * 9 * streams);
  block.forward.ops += 2;
  block.backward.ops += 3;
}

// The narrow MLP of a norm, and what its gate moves.
void Pricing::gated_norm(BlockWork& block) const {
  const double rank = d(s_.gated_norm_rank);
  if (rank == 0) return;
  linear(block, rows_, rank, h_);
  linear(block, rows_, h_, rank);
  moved(block, rows_ * 6 * h_, rows_ * 10 * h_);
  block.forward.ops += 2;
  block.backward.ops += 2;
}

void Pricing::tensor_parallel(BlockWork& block) const {
  if (l_.tp <= 1) return;
  const double gather = cost::gather_s(j_.device, b_.net, {l_.tp, 1}, 2 * tokens_ * h_);
  // NCCL's own gathers reach 0.67 of NVLink 5 (SimuMax 1.2, b200_bf16_ceperm.json), not 0.9.
  const double plain = j_.device.family == cost::Family::blackwell ? 0.9 / 0.67 : 1;
  const double exposed = sw_.overlap_tp && sw_.sequence_parallel ? 1 - b_.tp_hidden : plain;
  // A gather and a scatter, or one all-reduce, in each direction. (With sequence parallelism the input is gathered
  // once more for the weight gradient, beside the input gradient's product.)
  block.forward.tensor += 2 * gather * exposed;
  block.backward.tensor += 2 * gather * exposed;
  block.forward.ops += 2;
  block.backward.ops += 3;
}

void Pricing::context_parallel(BlockWork& block) const {
  if (l_.cp <= 1) return;
  const double a = d(s_.num_attention_heads), g = d(s_.num_key_value_heads), e = d(s_.head_dim), t = l_.tp;
  // Neighbours that have a part of the heads each.
  const int inner = j_.context == model::Context::ulysses  ? l_.cp
                    : j_.context == model::Context::hybrid ? std::gcd(j_.context_inner, l_.cp)
                                                           : 1;
  if (inner > 1) {
    const double one = cost::all_to_all_s(j_.device, b_.net, {inner, l_.tp}, 2 * tokens_ * (2 * a + 2 * g) * e / t);
    block.forward.context += one;
    block.backward.context += one;
  }
  if (inner < l_.cp) {
    // Keys and values go round while the queries here work on those that came before. Round inner rings they do so
    // while one message is on its way to the next of these.
    const double kv = 2 * 2 * tokens_ * (s_.is_latent() ? d(s_.q_width()) : g * e) / t;
    const int ring = j_.context == model::Context::double_ring ? std::gcd(j_.context_inner, l_.cp) : 1;
    const int rings = l_.cp / inner / ring;
    const cost::Group near{ring, l_.tp}, far{rings, l_.tp * inner * ring};
    Hops hops;
    hops.add(j_.device, near, rings * (ring - 1) * cost::hop_s(j_.device, b_.net, near, kv));
    hops.add(j_.device, far, (rings - 1) * cost::hop_s(j_.device, b_.net, far, kv));
    block.forward.context += hops.exposed_s(b_.contention, block.forward.attention);
    block.backward.context += 2 * hops.exposed_s(b_.contention, block.backward.attention / 2);
  }
  // MindSpeed's ring merges each turn's result by a dozen element-wise launches of its own.
  const bool merged = j_.device.family == cost::Family::ascend && j_.context != model::Context::ulysses;
  block.forward.ops += (merged ? 30.0 : 4.0) * l_.cp;
  block.backward.ops += (merged ? 40.0 : 6.0) * l_.cp;
}

BlockWork Pricing::attention() const {
  const double recurrent = s_.recurrent();
  if (recurrent <= 0) return softmax_attention();
  if (s_.attending() <= 0) return recurrence();
  const BlockWork softmax = softmax_attention(), rule = recurrence();
  BlockWork mean;  // or the sum of both, where they are side by side
  for (const auto part : {&BlockWork::forward, &BlockWork::backward, &BlockWork::weights}) {
    mean.*part += (softmax.*part).scaled(s_.attending());
    mean.*part += (rule.*part).scaled(recurrent);
  }
  return mean;
}

// A recurrence along the sequence: its products are small and follow one another. `numbers` of a token are read and
// written; the backward pass moves them twice.
void Pricing::scan(BlockWork& w, double flops_per_token, double numbers) const {
  // Short products fill Hopper's units better than Blackwell's: Nemotron 3 was measured on both.
  const double faster = j_.device.family == cost::Family::hopper ? 1.7 : 1;
  const double t = l_.tp, scan_s = flops_per_token * tokens_ / t / (j_.device.bf16_flops * b_.scan_rate * faster);
  const bool delta =
      s_.recurrence == model::Recurrence::gated_delta || s_.recurrence == model::Recurrence::kimi_delta;
  const bool by_heads = j_.context == model::Context::ulysses, pieces = l_.cp > 1 && !by_heads;
  // With pieces of sequences what each makes of a state is worked out first (docs/features/recurrence.md).
  w.forward.attention += scan_s * (!pieces ? 1 : delta ? 7.0 / 3 : 3.0 / 2);
  w.backward.attention += 2.5 * scan_s * (!pieces ? 1 : delta ? 12.0 / 9 : 7.0 / 6);
  if (l_.cp > 1 && s_.has_states()) {
    const double keys = d(s_.linear_key_head_dim), values = d(s_.linear_value_head_dim);
    const double states = 2 * j_.microbatch * 4 * d(s_.linear_num_value_heads) / t * keys;
    const double heads = 2 * tokens_ * 2 * d(s_.linear_keys_width() + s_.linear_values_width()) / t;
    const auto exchange = [&](double bytes) {
      return cost::all_to_all_s(j_.device, b_.net, {l_.cp, l_.tp}, by_heads ? heads : bytes);
    };
    w.forward.context += exchange(states * (2 * values + (delta ? keys : 0)));
    w.backward.context += exchange(states * 2 * values);
  }
  const double bytes = b_.scan_traffic * tokens_ * 2 * numbers / t;
  elementwise(w, bytes, 2 * bytes);
  norm_and_residual(w);
  w.forward.ops += 14;
  w.backward.ops += 20;
  tensor_parallel(w);
}

BlockWork Pricing::recurrence() const {
  BlockWork w;
  const double t = l_.tp, keys = d(s_.linear_keys_width()), values = d(s_.linear_values_width());
  const double heads = d(s_.linear_num_value_heads);
  double numbers = 6 * keys + 8 * values;
  if (!s_.has_states()) {
    // b, c and x, b·x, what the convolution makes of it, and that times c; each written once and read once.
    linear(w, tokens_, 3 * h_ / t, h_);
    linear(w, tokens_, h_, h_ / t);
    scan(w, 0, 10 * h_);
    return w;
  }
  if (s_.recurrence == model::Recurrence::kimi_delta) {
    const double middle = d(s_.linear_key_head_dim + s_.linear_value_head_dim);
    linear(w, tokens_, (2 * keys + values + heads + (s_.linear_full_gates ? keys + values : 0)) / t, h_);
    if (!s_.linear_full_gates) {
      linear(w, rows_, middle, h_);
      linear(w, tokens_, (keys + values) / t, middle / 2);
    }
    numbers += 6 * keys;  // decays, in 4 bytes
  } else {
    linear(w, tokens_, (2 * keys + 2 * values + 2 * heads) / t, h_);
  }
  linear(w, tokens_, h_, values / t);
  scan(w, flops_.recurrence / s_.recurrent(), numbers);
  return w;
}

BlockWork Pricing::softmax_attention() const {
  BlockWork w;
  const double t = l_.tp, a = d(s_.num_attention_heads), g = d(s_.num_key_value_heads), e = d(s_.head_dim);
  if (s_.is_latent()) {
    const double rq = d(s_.q_lora_rank), rkv = d(s_.kv_lora_rank), dr = d(s_.qk_rope_head_dim);
    const bool joint = s_.raw_latent_of_queries;  // queries and gates by one projection of both latents
    if (rq > 0) {
      const double gates = joint ? d(s_.v_width()) : 0;
      linear(w, rows_, rq, h_);
      linear(w, tokens_, (d(s_.q_width()) + gates) / t, joint ? 2 * rq : rq);
    } else {
      linear(w, tokens_, d(s_.q_width()) / t, h_);
    }
    linear(w, rows_, rkv + dr, h_);
    linear(w, tokens_, a * d(s_.qk_nope_head_dim + s_.v_head_dim) / t, rkv);
    linear(w, tokens_, h_, d(s_.v_width()) / t);
    if (s_.gate_width() > 0) {
      if (!joint) linear(w, tokens_, a * d(s_.gate_width()) / t, h_);
      moved(w, tokens_ * 6 * d(s_.v_width()) / t, tokens_ * 10 * d(s_.v_width()) / t);
    }
    elementwise(w, rows_ * 6 * (rq + rkv), rows_ * 10 * (rq + rkv));
    const double qk_bytes = 12 * tokens_ * d(s_.q_width()) / t;  // rotary parts joined to the others
    elementwise(w, qk_bytes, qk_bytes);
    w.forward.ops += 10;
    w.backward.ops += 14;
  } else {
    const double gate = s_.attention_gate >= model::AttentionGate::element ? a : 0;  // as many queries again
    linear(w, tokens_, (a + gate + 2 * g) * e / t, h_);
    linear(w, tokens_, h_, a * e / t);
    const double rotary = s_.foreign.alibi || !s_.turns() ? 0 : 4 * tokens_ * (a + g) * e / t;
    elementwise(w, rotary, rotary);
    w.forward.ops += 5;
    w.backward.ops += 6;
  }
  norm_and_residual(w);
  gated_norm(w);

  if (sw_.fused_attention) {
    // A window's ends lie within tiles of 128 keys, which are computed whole.
    const double whole_tiles = s_.sliding_window > 0 ? 1 + 128.0 / d(s_.sliding_window) : 1;
    const double computed = (flops_.attention_core + (whole_tiles - 1) * flops_.attention_window) / s_.attending();
    double one = cost::attention_s(j_.device, computed * tokens_ / t, j_.sequence, d(s_.q_width()) / a) /
                 sw_.attention_speed;
    if (s_.selects()) {
      // Scores, in 8 bits where the device has them, and the choice of keys, which reads them once more.
      const double part = s_.indexed(), width = d(s_.index_n_heads * s_.index_head_dim);
      one += cost::attention_s(j_.device, flops_.attention_index * tokens_ / t, j_.sequence, d(s_.index_head_dim));
      linear(w, tokens_ * part, width / t, d(s_.q_lora_rank > 0 ? s_.q_lora_rank : s_.hidden_size));
      linear(w, rows_ * part, d(s_.index_head_dim + s_.index_n_heads), h_);
      moved(w, part * tokens_ * j_.sequence * 4 / t, 0);
      w.forward.ops += 12;
      w.backward.ops += 14;
    }
    w.forward.attention += one;
    w.backward.attention += cost::sustained(j_.device).attention_backward * one;  // five products in place of two
  } else {
    // The whole square by batched products; softmax and dropout over the scores in memory.
    const double square = j_.microbatch * a / t, scores = square * j_.sequence * j_.sequence;
    const double products = cost::product_s(j_.device, Precision::bf16, j_.sequence, j_.sequence, e, square) +
                            cost::product_s(j_.device, Precision::bf16, j_.sequence, e, j_.sequence, square);
    w.forward.attention += products;
    w.backward.attention += 2 * products;
    moved(w, scores * (8 + (sw_.dropout ? 5 : 0)), scores * (10 + (sw_.dropout ? 5 : 0)));
    w.forward.ops += 6;
    w.backward.ops += 8;
  }
  context_parallel(w);
  tensor_parallel(w);
  return w;
}

BlockWork Pricing::dense() const {
  BlockWork w;
  const double t = l_.tp, f = d(s_.intermediate_size);
  linear(w, tokens_, (s_.has_gated_mlp() ? 2 : 1) * f / t, h_);
  linear(w, tokens_, h_, f / t);
  elementwise(w, tokens_ * (s_.has_gated_mlp() ? 6 : 4) * f / t, tokens_ * (s_.has_gated_mlp() ? 10 : 6) * f / t);
  norm_and_residual(w);
  w.forward.ops += 2;
  w.backward.ops += 3;
  tensor_parallel(w);
  return w;
}

BlockWork Pricing::moe() const {
  BlockWork w;
  const model::Shape& m = s_;
  const double width = m.moe_latent_size > 0 ? d(m.moe_latent_size) : h_, fe = d(m.moe_intermediate_size) / l_.etp,
               k = m.computing_experts();
  const double own = tokens_ / l_.tp;                                 // tokens this rank routes
  const double local = std::max(1.0, d(m.n_routed_experts) / l_.ep);  // experts here
  const cost::Evened evened = evened_rows(j_, b_, j_.imbalance);
  const double fullest = fullest_rows(j_, evened.imbalance);
  const double sent =
      j_.exchange.capacity_factor > 0 ? own * k * fullest : own * k;  // rows of this rank, or places for them
  const double received = own * k * fullest * l_.etp;                 // rows here
  const double up = m.has_gated_mlp() ? 2 : 1;
  const double groups = local + evened.replicas;
  linear(w, received / groups, up * fe, width, groups);
  linear(w, received / groups, width, fe, groups);
  elementwise(w, received * (up + 1) * 2 * fe, received * (2 * up + 1) * 2 * fe);
  const double routed_weights = w.weights.products;
  // Permuted, sorted by expert on arrival, put back, combined: rows are read and written each time.
  elementwise(w, (2 * sent + 3 * received) * 2 * width, (3 * sent + 3 * received) * 2 * width);
  if (m.moe_latent_size > 0) {
    linear(w, own, width, h_);
    linear(w, own, h_, width);
  }
  const double before_forward = w.forward.products, before_backward = w.backward.products;
  if (m.shared_width() > 0) {
    const double fs = d(m.shared_width()) / l_.tp;
    linear(w, tokens_, up * fs, h_);
    linear(w, tokens_, h_, fs);
    elementwise(w, tokens_ * (up + 1) * 2 * fs, tokens_ * (2 * up + 1) * 2 * fs);
  }
  const double shared_forward = w.forward.products - before_forward,
               shared_backward = w.backward.products - before_backward;
  linear(w, own, d(m.choices()), h_, 1, false);
  elementwise(w, own * 24 * d(m.choices()), own * 24 * d(m.choices()));
  if (m.zero_expert_num > 0) elementwise(w, own * 4 * h_, own * 6 * h_);
  if (m.expert_norms) elementwise(w, own * 16 * h_, own * 24 * h_);  // four norms
  norm_and_residual(w);
  gated_norm(w);
  // Router, choice, maps, counts, permutations, casts: a Python framework's mixture layer is hundreds of small
  // launches and waits for counts from the device.
  const double each = b_.moe_ops + b_.expert_ops * local * (cast_bytes(j_.precision) > 0 ? 1 : 0.4);  // casts
  w.forward.ops += each;
  w.backward.ops += each;
  if (l_.ep > 1) {
    // Places go straight to their experts, as many to every rank.
    const double one = j_.exchange.capacity_factor > 0
                           ? cost::all_to_all_s(j_.device, b_.net, {l_.ep * l_.etp, 1}, received * 2 * width)
                           : even_exchange_s(j_, b_) * (crosses_nodes(j_) ? j_.imbalance : evened.imbalance);
    add_exchange(w.forward, 2 * one, j_, b_);
    add_exchange(w.backward, 2 * one, j_, b_);
    if (sw_.layer_overlap != LayerOverlap::none && !sw_.overlap_exchange &&
        !pipeline_of(j_)->outline().hides_exchange) {
      // Beside products of the same microbatch that don't need the rows: no more than these take.
      const auto hide = [&](Work& of, double beside) {
        of.exchange -= (1 - b_.contention) * std::min(2 * one, beside);
      };
      hide(w.forward, shared_forward);
      hide(w.backward, shared_backward + (sw_.layer_overlap == LayerOverlap::all ? routed_weights : 0));
    }
    if (replica_slots(j_) > 0) {
      // All ranks receive everyone's numbers of rows for each expert, 4 bytes each, before any row moves.
      const Group group{l_.ep * l_.etp, 1};
      w.forward.exchange += cost::all_to_all_s(j_.device, b_.net, group, 4 * d(m.n_routed_experts) * group.size);
      w.forward.ops += 1;
      add_copies(w, evened, j_, b_);
    }
  }
  if (l_.etp > 1) {
    const double gather = cost::gather_s(j_.device, b_.net, {l_.etp, 1}, 2 * own * k * l_.etp * width);
    w.forward.tensor += 2 * gather;
    w.backward.tensor += 2 * gather;
  } else if (m.shared_width() > 0) {
    tensor_parallel(w);
  }
  return w;
}

BlockWork Pricing::mamba() const {
  BlockWork w;
  const double t = l_.tp, inner = d(s_.linear_values_width()), bc = 2 * d(s_.linear_keys_width());
  linear(w, tokens_, (2 * inner + bc + d(s_.linear_num_value_heads)) / t, h_);
  linear(w, tokens_, h_, inner / t);
  scan(w, flops_.mamba_scan, 8 * inner + 6 * bc);
  return w;
}

BlockWork Pricing::head() const {
  BlockWork w;
  const double v = d(s_.vocab_size) / l_.tp;
  linear(w, tokens_, v, h_, 1, false);
  moved(w, tokens_ * v * (sw_.fused_loss ? 6 : 16), tokens_ * v * 4);
  w.forward.ops += 10;
  w.backward.ops += 10;
  return w;
}

void Pricing::shard_weights(BlockWork& block, double parameters, Group group) const {
  if (group.size <= 1) return;
  const double gather = cost::gather_s(j_.device, b_.net, group, 2 * parameters);
  const double scatter =
      j_.frozen_base ? 0 : cost::gather_s(j_.device, b_.net, group, sw_.reduce_bytes * parameters);
  const auto exposed = [&](double communication, const Work& beside) {
    return std::max(0.0, communication - beside.compute()) + b_.contention * communication;
  };
  block.forward.data += exposed(gather, block.forward);
  block.backward.data += exposed(gather + scatter, block.backward);
}

double block_s(const Work& w, const Job& j, const Behaviour& b) {
  const double device = w.device_s();
  const double host =
      w.ops * j.device.host_us * 1e-6 * j.software.launch_factor * (1 - j.software.captured) * b.host_scale;
  const double n = b.launch_sharpness;
  return device <= 0 ? host : device * std::pow(1 + std::pow(host / device, n), 1 / n);
}

Prices prices_of(const Job& j, const model::Parameters& p, const Behaviour& b) {
  Prices prices = unsharded_prices_of(j, p, b);
  add_sharding(j, p, b, prices);
  return prices;
}

Prices unsharded_prices_of(const Job& j, const model::Parameters& p, const Behaviour& b) {
  if (j.software.lowered != nullptr) return j.software.lowered->prices(j, b);
  const plan::Degrees& l = j.mesh;
  const Pricing price(j, b);
  Prices of;
  of.kept_imbalance = evened_rows(j, b, j.memory_imbalance > 0 ? j.memory_imbalance : j.imbalance).imbalance;
  of.head = price.head();
  if (j.shape.attention_blocks() > 0) of.attention = price.attention();
  if (j.shape.dense_blocks() > 0) of.dense = price.dense();
  if (j.shape.moe_blocks() > 0) of.moe = price.moe();
  if (j.shape.mamba_blocks() > 0) of.mamba = price.mamba();
  if (j.software.sharded_weights) {
    Group data{l.dp * l.cp, l.tp};
    if (j.software.sharded_inside) data.size = cost::ranks_inside(j.device, data);
    const Group expert{std::max(1, l.tp * l.cp * l.dp / (l.ep * l.etp)), l.ep * l.etp};
    price.shard_weights(of.head, p.head / l.tp, data);
    price.shard_weights(of.attention, p.attention / l.tp, data);
    price.shard_weights(of.dense, p.dense / l.tp, data);
    price.shard_weights(of.mamba, p.mamba / l.tp, data);
    price.shard_weights(of.moe, (p.moe - p.moe_routed) / l.tp, data);
    price.shard_weights(of.moe, p.moe_routed / (l.ep * l.etp), expert);
  }
  return of;
}

void add_copies(BlockWork& to, const cost::Evened& evened, const Job& j, const Behaviour& b) {
  // Weights come for each of two products, there and back, and two gradients return.
  to.forward.ops += 2;
  to.backward.ops += 4;
  // Weights of the first product are waited for in the forward; what is more than the products hide, in the
  // backward.
  add_exchange(to.forward, evened.awaited_s / 2, j, b);
  add_exchange(to.backward, evened.awaited_s / 2, j, b);
  const double hidden = b.contention * (evened.sent_s - evened.awaited_s) / 2;
  to.forward.exchange += hidden;
  to.backward.exchange += hidden;
}

void add_exchange(Work& to, double seconds, const Job& j, const Behaviour& b) {
  // DualPipe pairs every forward with a backward: nearly all is hidden.
  const double hidden = pipeline_of(j)->outline().hides_exchange ? 0.9
                        : j.software.overlap_exchange            ? b.exchange_hidden
                                                                 : 0;
  to.exchange += seconds * (1 - hidden + (hidden > 0 ? b.contention : 0));
  to.hidden_exchange += seconds * hidden;
}

Work backward_of(const Prices& prices, const BlockWork& block, BlockKind kind, const Job& j) {
  return prices.saved ? block.backward : with_recompute(block, j.recompute, kind);
}

Work with_recompute(const BlockWork& b, const Recompute& r, BlockKind kind) {
  Work w = b.backward;
  // Sharded weights are gathered once for what is computed again and the backward itself.
  Work forward = b.forward;
  forward.data = 0;
  if (r.has(GroupName::layer)) {
    w += forward.scaled(r.every);
    return w;
  }
  const auto again = [&](double products, double attention, double traffic) {
    w.products += products * b.forward.products;
    w.attention += attention * b.forward.attention;
    w.traffic += traffic * b.forward.traffic;
    w.ops += traffic * b.forward.ops;
  };
  const bool is_attention = kind == BlockKind::attention;
  if (r.has(GroupName::norm)) again(0, 0, 0.2);
  if (is_attention && r.has(GroupName::attention)) again(0, 1, 0.2);
  if (is_attention && r.has(GroupName::mla_up)) again(0.35, 0, 0.4);
  if (kind == BlockKind::dense && r.has(GroupName::mlp)) again(0.67, 0, 0.5);
  if (!is_attention && r.has(GroupName::activation)) again(0, 0, 0.25);
  if (kind == BlockKind::moe && r.has(GroupName::moe)) w += forward;
  return w;
}

}  // namespace heddle::search
