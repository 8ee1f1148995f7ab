// Bash scripts for Megatron-LM and MindSpeed, and what these can't do. The flags come from the table
// (launch_flags); here is what stands around them.
//
// Refusals follow the programs' own argument checks: Megatron-LM's arguments.py and transformer_config.py,
// MindSpeed's feature managers; those about recompute and offload beside other features also stand in
// Megatron-Bridge's documentation.
#include <algorithm>
#include <cctype>
#include <cmath>

#include "advisor/script/emit.h"
#include "advisor/script/launch_flags.h"
#include "advisor/script/schedule_words.h"
#include "heddle/base/error.h"
#include "heddle/base/escaped.h"
#include "heddle/plan/layout.h"

namespace heddle::advisor {

namespace {

std::string upper(std::string text) {
  for (char& c : text) c = static_cast<char>(c >= 'a' && c <= 'z' ? c - 'a' + 'A' : c);
  return text;
}

class Refusals {
 public:
  template <class... Args>
  void when(bool wrong, fmt::format_string<Args...> text, Args&&... args) {
    if (wrong) all.push_back(fmt::format(text, std::forward<Args>(args)...));
  }
  std::vector<std::string> all;
};

void refuse_model(const Launch& launch, Dialect dialect, Refusals& no) {
  const Job& j = launch.job;
  const model::Shape& s = j.shape;
  const bool megatron = dialect == Dialect::megatron;
  no.when(s.is_hybrid(), "the order of a hybrid model's blocks is not known here");
  no.when(megatron && j.frozen_base, "frozen base weights (LoRA) are not a matter of flags");
  no.when(megatron && s.foreign.alibi, "Megatron-LM has no ALiBi positions");
  no.when(megatron && s.foreign.embedding_norm, "Megatron-LM has no norm after the embedding");
  no.when(s.foreign.has_numbers(), "no flags state this form of layers");
  const bool bias =
      s.has_output_bias() || (s.dense_blocks() > 0 && s.mlp_bias) || (s.n_routed_experts > 0 && s.experts_bias);
  const bool all = (s.is_latent() || (s.has_output_bias() && s.has_qkv_bias())) &&
                   (s.dense_blocks() == 0 || s.mlp_bias) &&
                   (s.n_routed_experts == 0 || (s.experts_bias && s.router_bias));
  no.when(bias && !all, "biases on some linears only: --disable-bias-linear is all or nothing");
  no.when(s.recurs() && !s.is_hybrid(), "recurrent layers (model.recurrence)");
  no.when(s.key_multiplier != 1, "a factor on keys (model.key_multiplier)");
  no.when(s.attention_in_multiplier != 1, "a factor on what attention reads (model.attention_in_multiplier)");
  no.when(s.mlp_gate_multiplier != 1, "a factor on gates of MLPs (model.mlp_gate_multiplier)");
  no.when(s.topk_bias && !s.sigmoid_scores, "a bias on the choice of experts beside softmax scores");
  no.when(s.kv_lora_rank > 0 && s.sliding_window > 0, "a sliding window with latent attention");
  no.when(s.attention_logit_cap > 0, "capped scores of attention (model.attention_logit_cap)");
  no.when(s.no_rope_layer_interval > 0, "layers that turn nothing (model.no_rope_layer_interval)");
  no.when(!s.rotation_pattern.empty(), "layers that turn nothing (model.rotation_pattern)");
  no.when(s.qk_unit_norm, "norms of queries and keys without a gain (model.qk_unit_norm)");
  no.when(s.window_chunks, "attention in chunks (model.window_chunks)");
  no.when(s.parallel_blocks, "attention and MLP side by side (model.parallel_blocks)");
  no.when(s.norm == model::Norm::layer && !s.norm_bias, "LayerNorm without a bias (model.norm_bias)");
  no.when(s.gates_on_inputs, "gates on what experts read (model.gates_on_inputs)");
  no.when(s.shared_expert_average, "the mean of routed and shared experts (model.shared_expert_average)");
  no.when(s.softplus_scores, "router scores by the root of softplus (model.softplus_scores)");
  no.when(s.zero_expert_num > 0, "experts without computation (model.zero_expert_num)");
  no.when(s.num_hash_layers > 0, "experts chosen by token id (model.num_hash_layers)");
  no.when(s.shortcut_experts, "experts that add behind the next layer (model.shortcut_experts)");
  no.when(s.sparse_mixer, "gates of two experts in turn (model.sparse_mixer)");
  no.when(s.scaled_latents, "scaled latents (model.scaled_latents)");
  no.when(s.query_scale_beta > 0, "a factor on queries by their positions (model.query_scale_beta)");
  no.when(s.rotary_key_norm, "a norm of the rotary key (model.rotary_key_norm)");
  no.when(s.raw_latent_of_queries, "queries from two latents (model.raw_latent_of_queries)");
  no.when(s.gated_norm_rank > 0, "gated norms (model.gated_norm_rank)");
  no.when(s.experts_sum_norm, "a norm of what experts make (model.experts_sum_norm)");
  no.when(s.is_latent() && s.attention_sinks, "sinks with latent attention (model.attention_sinks)");
  no.when(s.is_latent() && s.attention_gate != model::AttentionGate::none,
          "a gate of latent attention (model.attention_gate)");
  no.when(s.head_bias, "a bias of the head (model.head_bias)");
  no.when(s.value_norm, "normed values (model.value_norm)");
  no.when(s.keys_are_values, "keys that are values (model.keys_are_values)");
  no.when(s.turning_pairs_factor < 1, "pairs of a head that stand still (model.turning_pairs_factor)");
  no.when(s.window_head_dim > 0, "heads of another width in windows (model.window_head_dim)");
  no.when(s.shared_key_value_layers > 0, "layers that share keys and values (model.shared_key_value_layers)");
  no.when(s.layer_embedding_size > 0, "an embedding for each layer (model.layer_embedding_size)");
  no.when(s.has_streams(), "streams of the residual (model.hyper_connections)");
  no.when(s.layer_scalars, "a factor on each layer's output (model.layer_scalars)");
  no.when(s.expert_norms, "norms of experts (model.expert_norms)");
  no.when(s.expert_scales, "factors on experts (model.expert_scales)");
  no.when(s.experts_limit > 0 || s.mlp_limit > 0,
          "limits of SwiGLU by layer (model.experts_limit, model.mlp_limit)");
  no.when(s.sliding_window > 0 && (s.max_window_layers > 0 || s.full_attention_last),
          "first or last layers without a window (model.max_window_layers, model.full_attention_last)");
  no.when(s.full_attention_offset > 0, "layers without a window that are counted from layer {}, accepted: 0",
          s.full_attention_offset);
  no.when(s.learned_positions() > 0 && static_cast<double>(s.learned_positions()) < j.sequence,
          "a sequence of {} tokens with {} learned positions", j.sequence, s.learned_positions());
  no.when(j.with_mtp && s.num_nextn_predict_layers > 0 && (s.learned_positions() > 0 || s.foreign.alibi),
          "multi-token prediction goes with rotary positions only");
  for (const auto& [there, what] : {std::pair(s.sliding_window > 0, "windows"),
                                    {s.attention_sinks && !s.is_latent(), "sinks"},
                                    {s.foreign.embedding_norm, "a norm after the embedding"},
                                    {s.shared_expert_gate, "a gate on shared experts"},
                                    {s.moe_latent_size > 0, "latent experts"}})
    no.when(!megatron && there, "MindSpeed's Megatron-LM (core 0.12.1) has no flag for {}", what);
  no.when(s.reachable_groups() > 0 && s.n_routed_experts % s.reachable_groups() != 0,
          "{} experts don't divide into groups of which a token may reach {}", s.n_routed_experts,
          s.reachable_groups());
}

void refuse_degrees(const Launch& launch, Dialect dialect, Refusals& no) {
  const Job& j = launch.job;
  const plan::Degrees& l = j.mesh;
  const model::Shape& s = j.shape;
  const bool experts = s.n_routed_experts > 0;
  const cost::Family family = j.device.family;
  no.when(dialect == Dialect::megatron && (family == cost::Family::tpu || family == cost::Family::gaudi),
          "Megatron-LM has no backend for {}", j.device.name);
  no.when(s.num_attention_heads % l.tp != 0, "{} heads are no multiple of tp {}", s.num_attention_heads, l.tp);
  no.when(!s.is_latent() && s.num_key_value_heads % l.tp != 0 && l.tp % s.num_key_value_heads != 0,
          "{} key and value heads and tp {} don't divide one another", s.num_key_value_heads, l.tp);
  no.when(experts && s.n_routed_experts % l.ep != 0, "{} experts are no multiple of ep {}", s.n_routed_experts,
          l.ep);
  no.when(l.tp * l.cp * l.dp % (l.ep * l.etp) != 0, "ep x etp = {} does not divide a stage's {} ranks",
          l.ep * l.etp, l.tp * l.cp * l.dp);
  no.when(j.global_batch % (int64_t{l.dp} * j.microbatch) != 0,
          "a global batch of {} is no multiple of dp x microbatch = {}", j.global_batch,
          int64_t{l.dp} * j.microbatch);
  no.when(j.chunks > 1 && l.pp == 1, "several chunks a rank need more than one rank");
  no.when(j.chunks > 1 && launch.layout.empty() && places_of(launch) % (int64_t{l.pp} * j.chunks) != 0,
          "{} layers don't divide into {} equal chunks", places_of(launch), l.pp * j.chunks);
  no.when(experts && l.tp > 1 && !j.software.sequence_parallel,
          "{} wants sequence parallelism for experts beside tp > 1", name_of(dialect));
  no.when(std::fmod(j.sequence, 1) != 0, "a sequence of {} tokens", j.sequence);
  no.when(l.cp > 1 && std::fmod(j.sequence, 2.0 * l.cp) != 0, "a sequence of {} is no multiple of 2 x cp = {}",
          j.sequence, 2 * l.cp);

  std::vector<std::string_view> orders;
  for (const Pipeline p : schedules_of(dialect)) orders.push_back(p->name());
  no.when(std::find(orders.begin(), orders.end(), launch.schedule) == orders.end(),
          "{} has no pipeline schedule '{}', accepted: {}", name_of(dialect), launch.schedule,
          fmt::join(orders, ", "));
  const bool dual = !method_of(launch.schedule).empty();
  no.when(dual && (l.pp < 2 || places_of(launch) % (2 * l.pp) != 0),
          "DualPipeV wants layers that are a multiple of 2 x pp");
  no.when(dual && !launch.layout.empty() && launch.noop.empty(), "DualPipeV takes equal stages only");
  no.when(!dual && (launch.schedule != "1f1b") != (j.chunks > 1), "the schedule {} with {} chunks a rank",
          launch.schedule, j.chunks);
  no.when(j.pipeline->name() != launch.schedule, "the schedule {} with an estimate of {}", launch.schedule,
          j.pipeline->name());
  const bool overlap = experts && l.ep > 1 && j.software.overlap_exchange;
  no.when(l.pp > 1 && !dual && overlap != (launch.schedule == "interleaved_fused"),
          "overlap of the experts' exchange and the schedule interleaved_fused go together");
}

bool has_empty_stage(const Launch& launch) {
  if (launch.layout.empty()) return false;
  const std::vector<std::string> stages =
      plan::letters_of_layout(launch.layout, launch.job.mesh.pp * std::max(1, pipeline_size(launch.job).chunks));
  return std::any_of(stages.begin(), stages.end(),
                     [](const std::string& stage) { return stage.find('t') == std::string::npos; });
}

void refuse_features(const Launch& launch, Dialect dialect, Refusals& no) {
  const Job& j = launch.job;
  const plan::Degrees& l = j.mesh;
  const Software& w = j.software;
  const bool mindspeed = dialect == Dialect::mindspeed, experts = j.shape.n_routed_experts > 0;
  const bool overlap = experts && l.ep > 1 && w.overlap_exchange;
  no.when(!mindspeed && j.recompute.has(GroupName::activation) && !j.recompute.has(GroupName::layer) && !experts,
          "Megatron-LM computes activation functions again in experts only");
  no.when(j.chunks > 1 && l.pp == 2 && !w.overlap_pp && !j.pipeline->pairs(),
          "several chunks on two ranks need overlapped messages");
  const bool dual = !method_of(launch.schedule).empty(), gradients = w.overlap_dp;
  no.when(mindspeed && (dual || overlap) && gradients, "{} does not go with overlap of gradients",
          dual ? "DualPipeV" : "overlap of the experts' exchange");
  no.when(mindspeed && (dual || overlap) && w.offload_activations, "{} does not go with offload of activations",
          dual ? "DualPipeV" : "overlap of the experts' exchange");
  no.when(mindspeed && w.state_bytes == 10 && j.precision != cost::Precision::bf16,
          "MindSpeed does without copies of fp32 parameters in bf16 only");
  no.when(mindspeed && overlap && !dual && !launch.noop.empty() &&
              launch.noop.front() < places_of(launch) - places_of(launch) / (int64_t{l.pp} * j.chunks),
          "overlap of the experts' exchange wants layers that do nothing in the last chunk only");
  no.when(!mindspeed && !launch.noop.empty(), "Megatron-LM has no layers that do nothing");
  no.when(j.residency.optimizer != plan::StateResidency::device &&
              j.residency.optimizer != (mindspeed ? plan::StateResidency::swap : plan::StateResidency::host),
          "{} does not keep the optimizer's state on the host in that way", name_of(dialect));
  no.when(j.residency.optimizer != plan::StateResidency::device && !w.sharded_states,
          "state on the host wants a sharded optimizer");
  no.when(mindspeed && j.residency.optimizer == plan::StateResidency::swap && w.state_bytes == 10,
          "MindSpeed swaps the optimizer's state with copies of fp32 parameters only");
  no.when(j.residency.crosses(), "{} keeps weights and sums of gradients on the device", name_of(dialect));
  no.when(!mindspeed && w.layer_overlap == LayerOverlap::all && l.ep > 1 && !overlap,
          "Megatron-LM overlaps the exchange within a microbatch beside shared experts only");
  no.when(mindspeed && overlap && l.etp > 1, "overlap of the experts' exchange wants etp 1");
  no.when(mindspeed && overlap && !dual && j.chunks > 1 && microbatches(j) / l.pp <= 1,
          "overlap of the experts' exchange wants more than {} microbatches", l.pp);
  no.when(dual && l.cp > 1, "DualPipeV does not go with context parallelism");
  no.when(dual && j.shape.tie_word_embeddings, "DualPipeV wants an output head of its own");
  no.when(dual && microbatches(j) < 2 * l.pp - 1, "DualPipeV wants {} microbatches or more", 2 * l.pp - 1);
  no.when(mindspeed && l.cp > 1 && j.context == model::Context::ulysses &&
              j.shape.num_attention_heads % (int64_t{l.cp} * l.tp) != 0,
          "{} heads are no multiple of cp x tp = {}", j.shape.num_attention_heads, l.cp * l.tp);
  no.when(!mindspeed && l.cp > 1 && j.context == model::Context::double_ring,
          "Megatron-LM has no double ring of context parallelism");
  no.when(l.cp > 1 && has_runs(j.context) &&
              (j.context_inner <= 1 || j.context_inner >= l.cp || l.cp % j.context_inner != 0),
          "context parallelism of two levels in runs of {} of {} ranks", j.context_inner, l.cp);
  no.when(mindspeed && l.cp > 1 && j.with_mtp && j.shape.num_nextn_predict_layers > 0,
          "MindSpeed's Megatron-LM (core 0.12.1) has no multi-token prediction beside context parallelism");
  no.when(mindspeed && experts && l.ep > 1 && !overlap && w.layer_overlap == LayerOverlap::all && l.tp > 1 &&
              w.overlap_tp,
          "MindSpeed overlaps the exchange within a microbatch without overlap of tensor parallelism only");
  no.when(mindspeed && overlap && has_empty_stage(launch),
          "overlap of the experts' exchange wants layers in every chunk");
  no.when(mindspeed && w.sharded_weights &&
              (l.ep > 1 || j.shape.tie_word_embeddings || j.precision == cost::Precision::fp16),
          "MindSpeed shards weights without expert parallelism, tied embeddings and fp16 only");
  no.when(overlap && j.recompute.has(GroupName::moe),
          "recompute of whole mixture layers does not go with overlap of the experts' exchange");
  no.when(overlap && !mindspeed && j.recompute.has(GroupName::layer),
          "full recompute does not go with overlap of the experts' exchange");
  no.when(overlap && method_of(launch.schedule).empty() && l.pp > 1 && j.chunks < 2,
          "overlap of the experts' exchange in a pipeline needs two chunks a rank or more");
  no.when(overlap && !mindspeed && j.with_mtp && j.shape.num_nextn_predict_layers > 1,
          "overlap of the experts' exchange takes one depth of multi-token prediction at most");
  no.when(!mindspeed && w.offload_activations && l.pp > 1,
          "Megatron-LM offloads activations without pipeline only");
  no.when(!mindspeed && w.offload_activations && j.recompute != Recompute{},
          "Megatron-LM does not recompute beside offloaded activations");
  no.when(!mindspeed && experts && l.ep > 1 && once_a_node(j) && j.exchange.capacity_factor == 0 &&
              !deepep_sayable(j.device),
          "rows cross to a node once by DeepEP, which has no kernels for {}", j.device.name);
  no.when(mindspeed && experts && l.ep > 1 && once_a_node(j) && j.exchange.capacity_factor == 0,
          "MindSpeed has no exchange that crosses to a node once");
  no.when(experts && l.ep > 1 && replica_slots(j) > 0, "{} makes no replicas of hot experts while training",
          name_of(dialect));
  no.when(mindspeed && w.captured != 0, "MindSpeed captures no graphs");
  no.when(mindspeed && j.precision != cost::Precision::bf16 && j.precision != cost::Precision::fp16,
          "{} products: flags for bf16 and fp16 only", cost::name_of(j.precision));
  no.when(mindspeed && j.recompute.has(GroupName::moe),
          "MindSpeed recomputes whole mixture layers by count of tokens only");
  no.when(mindspeed && w.sharded_weights && l.pp > 1, "MindSpeed shards weights without pipeline only");
  no.when(w.reduce_scatter != (w.sharded_states || w.sharded_weights),
          "gradients are scattered exactly where the optimizer is sharded");
  no.when(!gradients_sayable(w), "gradients of {} bytes reduced as {} bytes, accepted: 4 and 4, 2 and 2",
          w.gradient_bytes, w.reduce_bytes);
  no.when(!states_sayable(w, dialect), "{} bytes of optimizer states a parameter, accepted: {}", w.state_bytes,
          mindspeed ? "12, 10" : "12, 8, 7, 6");
  no.when(!capture_sayable(w.captured), "{} of the launches captured, accepted: 0, 0.5 (attention), 0.95 (all)",
          w.captured);
  no.when(w.launch_factor != 1 || w.attention_speed != 1 || w.reserve != 1 || w.context_bytes != 0,
          "the job describes other software's speed or reports");
  no.when(!launch.by_stage.empty(), "{} computes the same again on all stages", name_of(dialect));
  no.when(j.recompute.has(GroupName::mla_up) && !j.recompute.has(GroupName::layer) && !j.shape.is_latent(),
          "recompute of latent attention's projections in a model without them");
  no.when(j.recompute.has(GroupName::layer) && j.recompute != Recompute{{GroupName::layer}, j.recompute.every},
          "full recompute of some layers and of parts of the others");
  const double stage = static_cast<double>(places_of(launch)) / (l.pp * j.chunks);
  no.when(j.recompute.has(GroupName::layer) && j.recompute.every != 1 &&
              std::abs(j.recompute.every * stage - std::round(j.recompute.every * stage)) > 1e-9,
          "full recompute of {} of a stage's {} layers", j.recompute.every * stage, stage);
}

}  // namespace

std::string shell_quoted(const std::string& word) {
  const bool plain = !word.empty() && std::all_of(word.begin(), word.end(), [](unsigned char c) {
    return std::isalnum(c) != 0 || std::string_view("-_.,:/+").find(static_cast<char>(c)) != std::string_view::npos;
  });
  return plain ? word : "'" + word + "'";
}

int connections_of(const Launch& launch, Dialect dialect) {
  // Overlap of the exchange and sharded weights want several, tensor parallelism without them one.
  const Software& w = launch.job.software;
  return w.sharded_weights || (dialect == Dialect::megatron && w.overlap_exchange) ? 32 : 1;
}

std::string connections_line(const Launch& launch, Dialect dialect) {
  return fmt::format("export CUDA_DEVICE_MAX_CONNECTIONS={}\n", connections_of(launch, dialect));
}

std::vector<std::string> script_refusals(const Launch& given, Dialect dialect) {
  const Launch launch = normalized(given);
  Refusals no;
  refuse_model(launch, dialect, no);
  refuse_degrees(launch, dialect, no);
  refuse_features(launch, dialect, no);
  return no.all;
}

std::string script_text(const Launch& given, Dialect dialect) {
  const Launch launch = normalized(given);
  const Job& j = launch.job;
  const plan::Degrees& l = j.mesh;
  int node = std::max(1, std::min(8, l.ranks()));
  while (l.ranks() % node != 0) --node;
  std::string out = "#!/bin/bash\n";
  out += fmt::format("# {} for {}: {} x {}, tp {} pp {} vpp {} cp {} dp {} ep {} etp {}, {}.\n", name_of(dialect),
                     shown(j.shape.name), l.ranks(), shown(j.device.name), l.tp, l.pp, j.chunks, l.cp, l.dp, l.ep,
                     l.etp, launch.schedule);
  out += "# Written by heddle search; MOCK_ARGS are a stand-in for data, tokenizer and rates.\n";
  out += connections_line(launch, dialect);
  if (dialect == Dialect::mindspeed) out += "export HCCL_CONNECT_TIMEOUT=1800\n";
  out += fmt::format("\nGPUS_PER_NODE={}\nNNODES={}\n", node, l.ranks() / node);
  out +=
      "\nDISTRIBUTED_ARGS=(\n  --nproc_per_node $GPUS_PER_NODE\n  --nnodes $NNODES\n"
      "  --node_rank ${NODE_RANK:-0}\n  --master_addr ${MASTER_ADDR:-localhost}\n"
      "  --master_port ${MASTER_PORT:-6000}\n)\n";
  const std::vector<Flag> flags = flags_of(launch, dialect);
  std::string command;
  for (const char* group : {"model", "experts", "parallel", "memory", "training"}) {
    std::string lines;
    for (const Flag& f : flags) {
      if (f.group != group) continue;
      lines += "  " + f.name;
      for (const std::string& v : f.values) lines += " " + shell_quoted(v);
      lines += "\n";
    }
    if (lines.empty()) continue;
    out += fmt::format("\n{}_ARGS=(\n{})\n", upper(group), lines);
    command += fmt::format(" \\\n  \"${{{}_ARGS[@]}}\"", upper(group));
  }
  out +=
      "\nMOCK_ARGS=(\n  --mock-data\n  --tokenizer-type NullTokenizer\n  --train-iters 100\n  --lr 1e-4\n"
      "  --split 99,1,0\n  --log-interval 1\n)\n";
  if (dialect == Dialect::megatron)
    out.insert(out.find("  --mock-data"), "  --use-mcore-models\n  --transformer-impl transformer_engine\n");
  out += "\ntorchrun \"${DISTRIBUTED_ARGS[@]}\" pretrain_gpt.py" + command + " \\\n  \"${MOCK_ARGS[@]}\" \"$@\"\n";
  return out;
}

}  // namespace heddle::advisor
