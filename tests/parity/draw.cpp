#include "tests/parity/draw.h"

#include <algorithm>
#include <numeric>

#include "heddle/backends/backend.h"
#include "heddle/config/exact_layout.h"
#include "heddle/model/hashed_experts.h"
#include "heddle/model/rope_table.h"
#include "heddle/plan/switches.h"
#include "tests/parity/gated_streams_draw.h"
#include "tests/parity/gemma_draw.h"
#include "tests/parity/latents_draw.h"
#include "tests/parity/layers_draw.h"
#include "tests/parity/random_schedule.h"
#include "tests/parity/recurrence_draw.h"
#include "tests/parity/selection_draw.h"
#include "tests/support/tiny_models.h"

namespace heddle::parity {
namespace {

constexpr int64_t kSequences = 2, kSequence = 48;

class Dice {
 public:
  explicit Dice(uint64_t seed, std::string_view what = "draw") : key_(RandomKey(seed).with(what)) {}
  int below(int count) { return static_cast<int>(key_.bits(at_++) % static_cast<uint64_t>(count)); }
  bool one_in(int count) { return below(count) == 0; }
  int of(const std::vector<int>& choices) {
    return choices[static_cast<size_t>(below(static_cast<int>(choices.size())))];
  }

 private:
  RandomKey key_;
  uint64_t at_ = 0;
};

std::string shuffled(Dice& dice, std::vector<std::string> axes) {
  std::string order;
  while (!axes.empty()) {
    const auto at = static_cast<size_t>(dice.below(static_cast<int>(axes.size())));
    order += (order.empty() ? "" : "-") + axes[at];
    axes.erase(axes.begin() + static_cast<std::ptrdiff_t>(at));
  }
  return order;
}

plan::Degrees draw_mesh(Dice& dice, int most_ranks, int ranks) {
  for (;;) {
    plan::Degrees mesh;
    mesh.tp = dice.of({1, 1, 2, 4, 3});
    mesh.cp = dice.of({1, 1, 2, 4});
    mesh.dp = dice.of({1, 2, 4, 8});
    mesh.pp = dice.of({1, 1, 2, 3, 4});
    mesh.ep = dice.of({1, 2, 4, 3, 6, 12});
    mesh.etp = dice.of({1, 1, 1, 2, 3});
    if (!dice.one_in(3)) {
      mesh.order = shuffled(dice, {"tp", "cp", "dp", "pp"});
      mesh.expert_order = shuffled(dice, {"etp", "ep", "edp"});
    }
    const bool fits = ranks > 0 ? mesh.ranks() == ranks : mesh.ranks() >= 2 && mesh.ranks() <= most_ranks;
    if (kSequence % (2 * mesh.cp * mesh.tp) != 0) continue;
    if (fits && mesh.stage_ranks() % (mesh.ep * mesh.etp) == 0) return mesh;
  }
}

// Any cut of the model, with stages of nothing where there are more stages than cuts.
std::string draw_layout(Dice& dice, const model::ModelConfig& c, int stages, bool head_apart = false) {
  const std::string letters = plan::text_of(plan::layout_of("even", c, 1));
  std::vector<int> cuts;
  for (int s = 1; s < stages; ++s) cuts.push_back(dice.below(static_cast<int>(letters.size()) + 1));
  if (head_apart) cuts.back() = static_cast<int>(letters.size()) - 1;
  std::sort(cuts.begin(), cuts.end());
  std::string layout;
  size_t from = 0;
  for (const int cut : cuts) {
    layout += letters.substr(from, static_cast<size_t>(cut) - from) + "|";
    from = static_cast<size_t>(cut);
  }
  return layout + letters.substr(from);
}

// Words of a list, some of them for some layers only.
std::string draw_list(Dice& dice, const std::vector<std::string>& words) {
  std::string text;
  for (int count = dice.of({0, 1, 2, 4}); count > 0; --count) {
    text += (text.empty() ? "" : ",") + words[static_cast<size_t>(dice.below(static_cast<int>(words.size())))] +
            (dice.one_in(3) ? fmt::format(":{}-3", dice.below(3)) : "");
  }
  return text;
}

// Some of the words of a list only beyond a limit of rows.
std::string draw_limits(Dice& dice, const std::string& list) {
  std::string text;
  for (const char c : list + ",") {
    if (c == ',' && !list.empty() && dice.one_in(3)) text += fmt::format(">{:.1f}", 0.1 * dice.of({7, 10, 12}));
    text += c;
  }
  text.pop_back();
  return text;
}

// In a third of the draws, heads that share keys and values, as many as tp can cut. Other draws stay.
void draw_grouped(uint64_t number, const plan::Plan& p, model::ModelConfig& c) {
  Dice dice(number, "attention");
  if (!dice.one_in(3)) return;
  c.attention = model::ModelConfig::Attention::grouped;
  std::vector<int> fitting;
  for (const int heads : {1, 2, 3, 4, 6, 12}) {
    if (heads % p.mesh.tp == 0) fitting.push_back(heads);
  }
  c.num_key_value_heads = dice.of(fitting);
  c.head_dim = dice.of({4, 6});
  c.qk_norm = !dice.one_in(4);
  c.rope_interleave = dice.one_in(3);
  Dice more(number, "families");
  if (c.head_dim == 4 && more.one_in(3)) c.partial_rotary_factor = 0.5;
  c.attention_bias = static_cast<model::AttentionBias>(more.of({0, 1, 2}));
  c.mlp_bias = more.one_in(3);
  if (dice.one_in(4)) c.first_k_dense_replace = c.num_hidden_layers + c.num_nextn_predict_layers;
}

// In a third of the draws windows, in some layers or all; in a third documents that are apart, where token 0 ends
// one; and sinks, where heads are grouped.
void draw_masks(uint64_t number, plan::Plan& p, model::ModelConfig& c) {
  Dice dice(number, "masks");
  if (dice.one_in(3)) {
    c.sliding_window = dice.of({1, 5, 13, 24, 60});
    const int which = dice.below(3);
    if (which == 1) c.max_window_layers = 1;
    if (which == 2) c.full_attention_interval = 2;
    if (which == 2 && Dice(number, "offset").one_in(2)) c.full_attention_offset = 1;
  }
  if (dice.one_in(3)) p.document_end = 0;
  if (!c.is_latent()) c.attention_sinks = dice.one_in(3);
}

// Gates, norms and factors, each in a part of the draws, from dice of its own.
void draw_gates(uint64_t number, const plan::Plan& p, model::ModelConfig& c) {
  Dice dice(number, "gates");
  if (dice.one_in(3)) c.norm_places = dice.one_in(2) ? model::NormPlaces::after : model::NormPlaces::both;
  if (dice.one_in(3) && c.norm == model::Norm::rms) c.zero_centered_norms = true;
  if (dice.one_in(3) && c.swiglu_limit == 0)
    c.activation = dice.one_in(2) ? model::Activation::geglu : model::Activation::geglu_tanh;
  if (Dice limits(number, "limits"); c.activation == model::Activation::swiglu && c.swiglu_limit == 0) {
    const int layers = static_cast<int>(c.num_hidden_layers);
    if (limits.one_in(3)) c.experts_limit = 0.5 * limits.of({1, 2}), c.experts_limit_layer = limits.below(layers);
    if (limits.one_in(3)) c.mlp_limit = 0.5 * limits.of({1, 2}), c.mlp_limit_layer = limits.below(layers);
    if (c.mlp_limit > 0 && c.mlp_limit_layer + 1 < layers && limits.one_in(2))
      c.mlp_limit_last = 0.25, c.mlp_limit_last_layer = c.mlp_limit_layer + 1;
  }
  if (dice.one_in(3)) c.embedding_multiplier = 1.5;
  if (dice.one_in(3)) c.residual_multiplier = 0.5;
  if (dice.one_in(3)) c.logits_divisor = 2.5;
  if (dice.one_in(3)) c.final_logit_cap = 2;
  if (c.n_shared_experts > 0) {
    if (dice.one_in(3)) c.shared_expert_gate = true;
    if (dice.one_in(3)) c.shared_intermediate_size = 48;
  }
  if (dice.one_in(4) && !c.experts_bias) c.moe_latent_size = 20;
  if (c.is_latent()) return;
  if (dice.one_in(3))
    c.attention_gate = dice.one_in(2) ? model::AttentionGate::head : model::AttentionGate::element;
  if (c.qk_norm) {
    c.qk_norm_all_heads = dice.one_in(3);
    c.qk_norm_after_rotation = dice.one_in(3);
  }
  if (dice.one_in(3)) c.value_head_dim = 2;
  if (dice.one_in(3)) c.value_multiplier = 0.7;
  if (dice.one_in(3)) c.attention_scale = 0.4;
  if (Dice(number, "caps").one_in(4)) c.attention_logit_cap = 0.5;
  if (c.turns() && Dice(number, "no rope").one_in(4)) c.no_rope_layer_interval = 2;
  if (c.sliding_window == 0) return;
  if (dice.one_in(2)) c.window_attention_heads = 2 * c.num_attention_heads;
  if (dice.one_in(2) && c.num_key_value_heads % (2 * p.mesh.tp) == 0)
    c.window_key_value_heads = c.num_key_value_heads / 2;
  if (c.turns() && dice.one_in(2)) c.window_rope_theta = 100;
  if (c.window_rope_theta > 0 && c.head_dim == 4) c.window_rotary_factor = dice.one_in(2) ? 0.5 : 0;
  c.sinks_in_windows = c.attention_sinks && dice.one_in(2);
}

// In a third of the draws each, biases of the router and of experts, and clamped SwiGLU, some of whose gates and
// ups reach the limit. A row of zeros that sees no other, beyond the end of what depths predict, stays zero through
// all layers; where documents are apart clamped SwiGLU, which unlike the plain one has a slope there, would pass
// its gradient on a thousand times larger behind each norm, until fp32 has no number for it.
void draw_biases(uint64_t number, const plan::Plan& p, model::ModelConfig& c) {
  Dice dice(number, "experts");
  c.router_bias = dice.one_in(3);
  c.experts_bias = dice.one_in(3);
  if (dice.one_in(3) && p.document_end < 0) c.swiglu_limit = dice.of({1, 7});
}

// GPT-2's own parts, each by itself; and dropout.
void draw_parts(uint64_t number, model::ModelConfig& c) {
  Dice dice(number, "parts");
  if (dice.one_in(3)) c.norm = model::Norm::layer;
  if (dice.one_in(3)) c.activation = dice.one_in(2) ? model::Activation::gelu : model::Activation::gelu_tanh;
  if (Dice(number, "squared").one_in(5)) c.activation = model::Activation::relu2;
  if (c.activation != model::Activation::swiglu) c.swiglu_limit = 0;
  if (dice.one_in(2) && !c.is_latent() && c.num_nextn_predict_layers == 0) c.positions = model::Positions::learned;
  if (dice.one_in(3)) c.residual_dropout = 0.25;
  if (dice.one_in(4)) c.embedding_dropout = 0.5;
  if (Dice(number, "probabilities").one_in(4)) c.attention_dropout = 0.25;
}

// In a quarter of the draws, adapters beside frozen weights. From dice of its own, as above.
void draw_adapters(uint64_t number, plan::Plan& p) {
  Dice dice(number, "adapters");
  if (!dice.one_in(4)) return;
  p.lora.rank = dice.of({1, 2, 3});
  p.lora.alpha = 1.5;
  p.lora.rank_stabilized = dice.one_in(2);
  const std::vector<std::string> targets{"all", "attention", "o_proj", "all"};
  p.lora.targets = targets[static_cast<size_t>(dice.below(static_cast<int>(targets.size())))];
}

// In a third of the draws of grouped attention, half as many of others, recurrent layers, some beside others.
void draw_recurrence(Draw& d) {
  Dice dice(d.seed, "recurrence");
  model::ModelConfig& c = d.model;
  const plan::Degrees& mesh = d.plan.mesh;
  Dice kinds(d.seed, "kind of recurrence");
  const bool other = kinds.one_in(2);
  // Ranks of cp have heads of whole sequences each, or pieces of the sequences.
  const bool by_heads = mesh.cp > 1 && kinds.one_in(3);
  const int cuts = mesh.tp * (by_heads ? mesh.cp : 1);
  if (c.selects() || !dice.one_in(3) || c.num_attention_heads % cuts != 0) return;
  if (c.is_latent() && !other) return;
  std::vector<int> fitting;
  for (const int heads : {1, 2, 3, 4, 6, 12}) {
    if (heads % cuts == 0) fitting.push_back(heads);
  }
  c.sliding_window = c.max_window_layers = c.window_attention_heads = c.window_key_value_heads = 0;
  c.full_attention_offset = 0;
  c.window_rope_theta = c.window_rotary_factor = 0;
  c.sinks_in_windows = false;
  c.recurrence = model::Recurrence::gated_delta;
  c.full_attention_interval = d.plan.lora.rank > 0 ? dice.of({2, 3}) : dice.of({0, 2, 2, 3});
  c.linear_num_key_heads = dice.of(fitting);
  c.linear_num_value_heads = c.linear_num_key_heads * dice.of({1, 2, 3});
  c.linear_key_head_dim = dice.of({3, 4, 6});
  c.linear_value_head_dim = dice.of({2, 4, 5});
  c.linear_conv_kernel_dim = dice.of({2, 3, 4});
  c.linear_projections_apart = !other && Dice(d.seed, "projections").one_in(2);
  c.num_nextn_predict_layers = std::min<int64_t>(c.num_nextn_predict_layers, 1);
  if (other) {
    c.recurrence = c.is_latent() ? model::Recurrence::kimi_delta : model::Recurrence::lightning;
    c.linear_num_value_heads = c.linear_num_key_heads;
    c.linear_value_head_dim = c.linear_key_head_dim;
    c.full_attention_last = kinds.one_in(3);
    Dice gates(d.seed, "gates of Kimi Delta Attention");
    if (c.is_latent()) {
      c.linear_full_gates = gates.one_in(2);
      c.linear_decay_least = gates.of({0, -1, -5});
    }
  }
  if (mesh.cp == 1) return;
  if (by_heads) {
    d.plan.parallel.context = model::Context::ulysses;
  } else if (d.plan.parallel.context == model::Context::ulysses) {
    d.plan.parallel.context = kinds.one_in(2) ? model::Context::gather : model::Context::ring;
  }
  if (c.num_key_value_heads % cuts != 0) c.num_key_value_heads = dice.of(fitting);
}

// In some draws each: no positions, a stream that goes on from its normed rows, blocks that add up by factors.
void draw_stream(Draw& d) {
  Dice dice(d.seed, "stream");
  model::ModelConfig& c = d.model;
  const bool none = dice.one_in(4);
  if (none && c.turns() && !c.selects() && !c.has_window_rotation()) {
    c.positions = model::Positions::none;
    c.no_rope_layer_interval = 0;
    if (c.is_latent() && Dice(d.seed, "rotary key").one_in(2)) c.qk_rope_head_dim = 0;
  }
  if (dice.one_in(6)) c.norm_places = model::NormPlaces::stream;
  if (!dice.one_in(4)) return;
  c.full_attn_alpha_factor = 1.5, c.full_attn_beta_factor = 0.7;
  c.mlp_alpha_factor = 0.8, c.mlp_beta_factor = 1.2;
  if (c.recurs()) c.linear_attn_alpha_factor = 0.9, c.linear_attn_beta_factor = 1.3;
}

// In a third of the draws, Muon for the matrices of layers. From dice of its own, as above.
void draw_optimizer(uint64_t number, plan::Plan& p) {
  Dice dice(number, "optimizer");
  if (!dice.one_in(3)) return;
  p.update.rule = passes::OptimizerRule::muon;
  if (dice.one_in(2)) p.update.momentum = 0.8;
}

// In a third of the draws each, labels that count by weights, and z-loss of the logits.
void draw_losses(uint64_t number, plan::Plan& p) {
  Dice dice(number, "losses");
  p.weighs_labels = dice.one_in(3);
  if (dice.one_in(3)) p.objective.logit_z_loss = 0.01;
}

// In a fifth of the draws, pairs of answers; what is of next tokens alone does not go with them.
void draw_pairs(Draw& d) {
  Dice dice(d.seed, "pairs");
  if (!dice.one_in(5)) return;
  plan::Plan& p = d.plan;
  p.objective = {.learns = model::Learns::dpo, .beta = 0.3, .label_smoothing = dice.one_in(2) ? 0.1 : 0};
  p.weighs_labels = false;
  d.model.num_nextn_predict_layers = 0;
  if (d.token_kinds == 1) d.token_kinds = 5;  // between two equal answers there is nothing to learn
}

// In a third of the draws a capacity of experts, and biases by quantiles in half of those that can have them. Where
// a rank routes one rank's rows with their bits, choices are dropped and margins counted as there; a cut microbatch
// has capacities of its own, and what is rounded elsewhere may drop another of two gates that are all but equal:
// there nothing is dropped.
void draw_capacity(Draw& d) {
  Dice dice(d.seed, "capacity");
  const bool same = config::why_not_exact(d.model, d.plan.mesh, d.node_of).empty();
  const double none_dropped =
      static_cast<double>(d.model.n_routed_experts) / static_cast<double>(d.model.num_experts_per_tok);
  const std::vector<double> factors{0.4, 0.75, 1, 1.25};
  const double factor = factors[static_cast<size_t>(dice.below(4))];
  if (dice.one_in(3)) d.plan.parallel.exchange.capacity_factor = same ? factor : none_dropped;
  if (dice.one_in(2) && same) {
    d.model.topk_bias = true;
    d.model.n_group = d.model.topk_group = 1;
    d.model.bias_balance = model::BiasBalance::quantile;
  }
}

// In a quarter of the draws each: experts without computation, pairs of layers with a shortcut, layers that choose
// experts by token id, a bias of the head, scaled latents; in a sixth two experts gated one after the other.
void draw_routers(Draw& d) {
  Dice dice(d.seed, "routers");
  model::ModelConfig& c = d.model;
  const bool zero = dice.one_in(4), pairs = dice.one_in(4), mixer = dice.one_in(6);
  const int count = dice.of({1, 4, 7});
  c.head_bias = dice.one_in(4);
  if (c.is_latent()) c.scaled_latents = dice.one_in(4);
  const auto keep_if_valid = [&](const model::ModelConfig& before) {
    try {
      model::validate(c);
    } catch (const ConfigError&) {
      c = before;
    }
  };
  model::ModelConfig before = c;
  if (pairs) {
    c.shortcut_experts = true;
    c.num_hidden_layers += c.num_hidden_layers % 2;
    c.first_k_dense_replace = 0;
    c.residual_dropout = 0;
    c.norm_places = model::NormPlaces::before;
    c.mlp_alpha_factor = c.mlp_beta_factor = c.residual_multiplier = 1;
    keep_if_valid(before);
  }
  before = c;
  if (zero && d.plan.parallel.exchange.capacity_factor == 0) {
    c.zero_expert_num = count;
    c.n_group = c.topk_group = 1;
    if (Dice(d.seed, "more than compute").one_in(3))
      c.num_experts_per_tok = static_cast<int>(c.n_routed_experts) + 1;
    if (c.bias_balance == model::BiasBalance::sign && count > 1) c.bias_balance = model::BiasBalance::share;
    keep_if_valid(before);
  }
  before = c;
  if (mixer && d.plan.parallel.exchange.capacity_factor == 0) {
    c.sparse_mixer = true;
    c.router_jitter_noise = 0.2;
    c.num_experts_per_tok = 2;
    c.n_group = c.topk_group = 1;
    c.routed_scaling_factor = 1;
    c.sigmoid_scores = c.softplus_scores = c.topk_bias = c.norm_topk_prob = false;
    keep_if_valid(before);
  }
  before = c;
  if (Dice by_id(d.seed, "hash layers"); by_id.one_in(4)) {
    c.num_hash_layers = std::min(c.num_hidden_layers, c.first_k_dense_replace + 1 + by_id.below(2));
    keep_if_valid(before);
  }
}

// In a quarter of the draws, operands in eight bits. Their blocks lie as on one rank where no weight, no microbatch
// and no expert's rows are cut; a number that rounds the other way for a last bit is one part in sixteen off, so
// that other layouts are held to what eight bits are off by (draw_bf16).
void draw_fp8(Draw& d) {
  Dice dice(d.seed, "fp8");
  const plan::Degrees& mesh = d.plan.mesh;
  if (!dice.one_in(4) || d.plan.lora.rank > 0 || mesh.tp * mesh.cp * mesh.ep * mesh.etp > 1) return;
  d.plan.device.fp8 = passes::Fp8::blocks;
  d.plan.turns_weights = dice.one_in(2);
}

// In a quarter of the draws an average of the weights, in half moments in fewer bits (fp64 runs keep them wide).
void draw_state(uint64_t number, plan::Plan& p) {
  if (Dice(number, "average").one_in(4)) p.update.average_decay = 0.6;
  Dice dice(number, "moments");
  if (dice.one_in(2)) p.update.moments = dice.one_in(2) ? passes::Moments::bf16 : passes::Moments::fp8;
}

// In a quarter of the draws where the schedule allows it, a step of fewer microbatches than the program has.
void draw_ramp(Draw& d) {
  Dice dice(d.seed, "ramp");
  plan::Plan& p = d.plan;
  if (!dice.one_in(4) || p.order || p.microbatches == 1) return;
  plan::Plan fewer = p;
  fewer.microbatches = 1 + dice.below(p.microbatches - 1);
  try {
    const schedule::Placement whole = plan::schedule_of(p).placement, part = plan::schedule_of(fewer).placement;
    if (part.rank_of != whole.rank_of || part.routes != whole.routes) return;
  } catch (const ConfigError&) {
    return;  // a schedule that can't be made for so few
  }
  p.fewer_microbatches = {fewer.microbatches};
  d.microbatches = fewer.microbatches * p.mesh.dp;
}

void pack(Draw& d) { d.plan.packed_bytes = backends::named(d.backend).packed_bytes; }

bool fits(const Draw& d) {
  try {
    plan::check(d.model, d.plan);
  } catch (const ConfigError&) {
    return false;
  }
  // The grid of exact sums is coarser than fp64.
  return !d.plan.exact_sums ||
         (d.plan.dtype != Dtype::f64 && config::why_not_exact(d.model, d.plan.mesh, d.node_of).empty());
}

// Layers that a cut parts from the one that chooses, or has keys, for them do so themselves.
void keep_layers_whole(Draw& d) {
  if (d.model.index_topk_freq > 1 && !fits(d)) d.model.index_topk_freq = 1;
  if (!d.model.index_pattern.empty() && !fits(d))
    std::replace(d.model.index_pattern.begin(), d.model.index_pattern.end(), 'S', 'I');
  keep_in_stages(d.model, [&] { return fits(d); });
}

// In a quarter of the draws, a limit that most heads' logits exceed.
void draw_qk_clip(Draw& d) {
  Dice dice(d.seed, "qk_clip");
  if (!dice.one_in(4)) return;
  d.plan.update.qk_clip = 1e-3;
  if (!fits(d)) d.plan.update.qk_clip = 0;
}

// Every switch of the table that keeps the maths, from dice of its own, so that a new one leaves the others' draws
// as they were. What model and mesh, or the switches before it, don't allow stays as it is by default.
void draw_switches(Draw& d, int one_in) {
  for (const plan::Setting<plan::Choices>& s : plan::settings()) {
    const bool drawn = s.is_switch(plan::MathsClass::bitwise) || s.is_switch(plan::MathsClass::reassociates);
    if (!drawn || s.key.starts_with("mesh.")) continue;  // draw_mesh
    Dice dice(d.seed, s.key);
    if (!dice.one_in(one_in)) continue;
    const plan::Choices before = d.plan;
    if (s.kind == plan::Row::Kind::list && s.as_switch->tried.empty()) {
      std::string text = draw_list(dice, s.words);
      Dice limits(d.seed, s.key + " limits");
      if (s.key == "memory.recompute") text = draw_limits(limits, text);
      s.set(d.plan, text);
    } else {
      const std::vector<plan::Value> values = s.tried_values();
      s.set(d.plan, values[static_cast<size_t>(dice.below(static_cast<int>(values.size())))]);
    }
    if (!fits(d)) static_cast<plan::Choices&>(d.plan) = before;
  }
  // Without a second round rows that find no room end the run.
  model::Dispatcher& exchange = d.plan.parallel.exchange;
  if (exchange.room_factor > 0 && exchange.room_factor < 2) exchange.second_round = true;
}

// What no switch has a name for: an order of one's own, and any cut of the model.
void draw_order(Dice& dice, Draw& d) {
  plan::Plan& p = d.plan;
  if (dice.one_in(3)) {
    const plan::Parallel usual;
    p.parallel.schedule = usual.schedule;
    p.parallel.chunks = usual.chunks;
    p.parallel.group = usual.group;
    const int kind = dice.below(3);
    schedule::Placement placement = schedule::loop_placement(p.mesh.pp, 1 + dice.below(3));
    if (kind == 1) placement = schedule::v_placement(p.mesh.pp);
    const bool two_way = p.microbatches % 2 == 0 && p.mesh.pp % 2 == 0 && !p.parallel.exchange.migrates() &&
                         p.parallel.shard == passes::Shard::state;
    if (kind == 2 && two_way) placement = schedule::two_way_placement(p.mesh.pp);
    p.order = random_schedule(placement, p.microbatches, [&](int count) { return dice.below(count); });
  } else if (dice.one_in(2)) {
    return;
  }
  p.parallel.layout = draw_layout(dice, d.model, plan::schedule_of(p).placement.stages);
}

// Whether copies of experts, or their homes, change the leaves of a token's sum.
bool sums_by_slots(const plan::Plan& plan) {
  const model::Dispatcher& exchange = plan.parallel.exchange;
  return (exchange.replicas != 0 || exchange.migrates()) && plan.mesh.ep > 1 &&
         exchange.topology != ir::Topology::plain;
}

}  // namespace

Draw draw(uint64_t number, int most_ranks, int ranks) {
  Dice dice(number);
  Draw d;
  d.seed = number;
  d.plan.mesh = draw_mesh(dice, most_ranks, ranks);
  model::ModelConfig& c = d.model;
  c = test::divisible_model();
  c.first_k_dense_replace = dice.below(2);
  c.q_lora_rank = dice.one_in(2) ? 8 : 0;
  c.num_experts_per_tok = dice.of({1, 2, 3, 5});
  c.n_shared_experts = dice.below(2);
  c.sigmoid_scores = !dice.one_in(3);
  c.topk_bias = dice.one_in(2);
  c.norm_topk_prob = !dice.one_in(3);
  if (dice.one_in(2)) {
    c.n_group = 4;
    c.topk_group = 2;
    c.group_score_top = Dice(number, "scores of groups").of({1, 2, 3});
  }
  c.routed_scaling_factor = 1.7;
  c.sequence_aux_loss_alpha = dice.one_in(2) ? 0.01 : 0;
  c.z_loss_weight = dice.one_in(2) ? 0.001 : 0;
  c.tie_word_embeddings = dice.one_in(3);
  c.num_nextn_predict_layers = dice.of({0, 0, 0, 1, 1, 2});
  plan::Plan& p = d.plan;
  p.microbatches = d.microbatches / p.mesh.dp;
  p.sequences = kSequences;
  p.sequence_length = kSequence;
  const int node_ranks = dice.of({1, 2, 3, 4, 16});
  for (int r = 0; r < p.ranks(); ++r) d.node_of.push_back(r / node_ranks);
  p.update.bucket_bytes = dice.of({1, 3000, 1 << 20});
  p.update.clip_norm = dice.one_in(2) ? 0.05 : 0;
  d.token_kinds = dice.of({48, 48, 5, 1});
  d.routing = static_cast<Routing>(dice.of({0, 0, 1, 2}));
  p.dtype = Dtype::f64;
  if (dice.one_in(4)) {
    p.dtype = Dtype::f32;
    d.tolerance = d.loss_tolerance = 1e-5;
    // Logits in the thousands may have gradients beyond fp32.
    if (d.routing == Routing::zeros) d.routing = Routing::ties;
    if (dice.one_in(2)) d.backend = "host";
  }
  pack(d);
  draw_grouped(number, p, c);
  draw_masks(number, p, c);
  draw_biases(number, p, c);
  draw_parts(number, c);
  draw_gates(number, d.plan, c);
  draw_adapters(number, p);
  draw_selection(d, Dice(number, "selection"));
  draw_recurrence(d);
  draw_blocks(d, Dice(d.seed, "blocks"));
  draw_stream(d);
  draw_optimizer(number, p);
  draw_losses(number, p);
  draw_pairs(d);
  draw_qk_clip(d);
  draw_state(number, p);
  draw_capacity(d);
  if (!c.sigmoid_scores && c.bias_balance != model::BiasBalance::quantile)
    c.softplus_scores = Dice(number, "softplus").one_in(2);
  draw_routers(d);
  draw_gemma(d.model, Dice(number, "gemma 4"));
  draw_compression(d, Dice(number, "compression"), fits);
  draw_index_blocks(d, Dice(number, "blocks of keys"), fits);
  draw_gated_blocks(d, Dice(number, "gated blocks of keys"), fits);
  draw_latent_gates(d.model, Dice(number, "latent gates"));
  draw_gates_apart(d.model, Dice(number, "gates apart"));
  draw_recurrent_parts(d, Dice(number, "parts of recurrences"));
  draw_streams(d.model, Dice(number, "streams"));
  draw_gated_streams(d, Dice(number, "gated streams"));
  draw_layers(d.model, Dice(number, "layers"), p.parallel.exchange.capacity_factor == 0);
  draw_further(d, Dice(number, "further layers"));
  draw_latents(c, Dice(number, "latents"), p.update.qk_clip > 0);
  if (c.n_shared_experts == 0) c.shared_expert_average = false;
  if (p.dtype == Dtype::f32) keep_in_fp32(d);
  draw_fp8(d);
  draw_switches(d, dice.of({1, 1, 3}));
  draw_order(dice, d);
  keep_layers_whole(d);
  draw_ramp(d);
  return d;
}

Draw draw_bf16(uint64_t number, int most_ranks, Rounding rounding, int ranks) {
  Draw d;
  for (uint64_t seed = 1'000'000 + 1000 * number;; ++seed) {
    d = draw(seed, most_ranks, ranks);
    const bool same = config::why_not_exact(d.model, d.plan.mesh, d.node_of).empty() && !sums_by_slots(d.plan);
    if (same == (rounding == Rounding::same)) break;
  }
  Dice dice(d.seed + 1);
  d.plan.dtype = Dtype::bf16;
  d.backend = dice.one_in(2) ? "host" : "reference";
  pack(d);
  if (d.routing == Routing::zeros) d.routing = Routing::ties;
  if (rounding == Rounding::others) {
    // A rounding more or less would send tokens to other experts: here all take all of them.
    d.model.sparse_mixer = false;
    d.model.gates_on_inputs = false;
    // Gradients of these norms, and the root in the gate of n-grams, have terms that cancel: up to 40 % off.
    d.model.rotary_key_norm = d.model.experts_sum_norm = false;
    d.model.ngram_layers.clear();
    d.model.num_experts_per_tok = static_cast<int>(d.model.choices());
    d.model.n_group = d.model.topk_group = 1;
    d.model.bias_balance = d.model.zero_expert_num > 1 ? model::BiasBalance::share : model::BiasBalance::sign;
    if (d.model.selects()) d.model.index_topk = kTakesAll;
    // Each norm multiplies a lone zero row's gradient by the root of 1 ÷ epsilon: to 1e40 behind twelve of 1e-6.
    if (d.plan.document_end >= 0) d.model.rms_norm_eps = 1e-2;
    // And more, as far as one rank is from fp64. Of one number that may be next to nothing by chance: three times
    // the 1 % by which bf16 is off in the few numbers that dominate a z-loss.
    // GELU has no second factor that evens roundings out: such a model is up to 1.2 % off where fp64 has 1e-10.
    d.tolerance = d.model.activation == model::Activation::swiglu ? 1e-2 : 2e-2;
    d.loss_tolerance = 3e-2;
    // Nor what eight bits round away: with two matrices an expert a loss was 6 % off, of an indexer a gradient 5 %.
    // The norm of values next to zero multiplies it by the root of 1 ÷ epsilon. The gradient of a scale of streams
    // has terms that cancel: 7 % off.
    if (d.plan.lora.rank == 0 && d.model.has_gated_mlp() && !d.model.selects() && !d.model.value_norm &&
        !d.model.has_streams() && Dice(d.seed, "fp8 elsewhere").one_in(3)) {
      d.plan.device.fp8 = passes::Fp8::blocks;
      d.plan.exact_sums = false;
    }
    return d;
  }
  if (d.plan.mesh.pp > 1 && !d.plan.objective.of_pairs() && d.model.index_blocks != model::IndexBlocks::gated &&
      !dice.one_in(3)) {  // depths, and cuts among them
    const bool none = d.model.has_streams() && d.model.norm != model::Norm::rms;
    d.model.num_nextn_predict_layers = none ? 0 : d.model.recurs() ? 1 : dice.of({1, 1, 2});
    if (d.model.first_k_dense_replace >= d.model.num_hidden_layers) d.model.num_hash_layers = 0;
    if (d.model.has_kind(model::LayerKind::window) && d.model.nextn_blocks.empty()) d.model.nextn_blocks = "WE";
    d.model.positions = model::Positions::rotary;
    d.model.qk_rope_head_dim = model::ModelConfig(test::divisible_model()).qk_rope_head_dim;
    d.plan.parallel.layout = draw_layout(dice, d.model, plan::schedule_of(d.plan).placement.stages, dice.one_in(2));
    keep_layers_whole(d);
  }
  // Activations and their gradients have the same bits; what differs is the order in which fp32 sums them over
  // microbatches and ranks, and losses, which fp64 sums over data ranks.
  d.tolerance = 1e-5;
  d.loss_tolerance = 1e-13;
  d.plan.exact_sums = dice.one_in(2) && d.plan.device.fp8 == passes::Fp8::off;
  const bool one_order = d.plan.mesh.stage_ranks() == 1 && plan::schedule_of(d.plan).placement.routes == 1;
  d.same_bits = one_order || d.plan.exact_sums;
  d.same_state = d.plan.exact_sums || (one_order && d.plan.update.clip_norm == 0);
  return d;
}

std::string Draw::text() const {
  std::string set;
  const plan::Choices usual;
  for (const plan::Setting<plan::Choices>& s : plan::settings()) {
    const plan::Value value = s.get(plan);
    if (value != s.get(usual)) set += fmt::format(", {} {}", s.key, plan::text_of(value));
  }
  return fmt::format(
      "draw {}: {} ranks on {} nodes{}{}, top {} of 12, {} token kinds, routing {}, {}, shared {}, depths {}{}, "
      "tied "
      "{}{}{}{}{}{}, {} on {}{}",
      seed, plan.ranks(), node_of.back() + 1, set, plan.order ? ", order " + plan.order->name : "",
      model.num_experts_per_tok, token_kinds, static_cast<int>(routing),
      model.is_latent()
          ? fmt::format("q_lora {}{}", model.q_lora_rank,
                        model.selects()
                            ? fmt::format(", {} keys selected, stage {}, one indexer of {}", model.index_topk,
                                          word_of(model.index_stage), model.index_topk_freq)
                            : "")
          : fmt::format("12 heads on {}{}{}, bias {}{}", model.num_key_value_heads, model.qk_norm ? " normed" : "",
                        model.partial_rotary_factor < 1 ? " rotated in part" : "", word_of(model.attention_bias),
                        model.mlp_bias ? " and mlp" : ""),
      model.n_shared_experts, model.num_nextn_predict_layers, model.nextn_blocks, model.tie_word_embeddings,
      model.sliding_window > 0 ? fmt::format(", window {} from layer {}, every {} without", model.sliding_window,
                                             model.max_window_layers, model.full_attention_interval) +
                                     text_of_recurrent_parts(model)
                               : "",
      std::string(
          model.recurs()
              ? fmt::format(", {} {} on {} heads of {} and {}, every {} attends{}, kernel {}",
                            word_of(model.recurrence), model.linear_num_value_heads, model.linear_num_key_heads,
                            model.linear_value_head_dim, model.linear_key_head_dim, model.full_attention_interval,
                            model.full_attention_last ? " and the last" : "", model.linear_conv_kernel_dim) +
                    (model.linear_projections_apart ? ", projections apart" : "") +
                    (model.linear_full_gates ? ", full gates" : "") + text_of_recurrent_parts(model) +
                    (model.linear_decay_least < 0 ? fmt::format(", decays above {}", model.linear_decay_least) : "")
              : "") +
          (plan.document_end >= 0 ? ", documents apart" : "") + (plan.weighs_labels ? ", weights" : ""),
      std::string(model.bias_balance == model::BiasBalance::quantile ? ", by quantiles" : "") +
          (model.attention_sinks ? ", sinks" : "") + (model.router_bias ? ", biased router" : "") +
          (model.experts_bias ? ", biased experts" : "") +
          (model.zero_expert_num > 0 ? fmt::format(", {} experts without computation, by {}", model.zero_expert_num,
                                                   word_of(model.bias_balance))
                                     : "") +
          (model.shortcut_experts ? ", pairs" : "") + (model.sparse_mixer ? ", mixed" : "") +
          (model.head_bias ? ", biased head" : "") + (model.scaled_latents ? ", scaled latents" : "") +
          (model.softplus_scores ? ", roots of softplus" : "") +
          (model.num_hash_layers > 0 ? fmt::format(", {} layers by token id", model.num_hash_layers) : "") +
          (model.no_rope_layer_interval > 0 ? ", every second layer not turned" : "") +
          (model.swiglu_limit > 0 ? ", clamped" : "") + text_of_streams(model) + text_of_ngrams(model) +
          text_of_layers(model) + text_of_latents(model) +
          (model.experts_limit > 0 ? fmt::format(", experts cut from layer {}", model.experts_limit_layer) : "") +
          (model.mlp_limit > 0 ? fmt::format(", MLPs cut from layer {}", model.mlp_limit_layer) : ""),
      fmt::format(", {} norms {}{}, {}, {} positions{}", word_of(model.norm), word_of(model.norm_places),
                  model.zero_centered_norms ? " of 1 + w" : "", word_of(model.activation), word_of(model.positions),
                  text_of_gates(model)),
      model.residual_dropout + model.embedding_dropout + model.attention_dropout > 0
          ? fmt::format(", dropout {}, {} and {}", model.residual_dropout, model.embedding_dropout,
                        model.attention_dropout)
          : "",
      heddle::name_of(plan.dtype), backend,
      same_state  ? ", same state"
      : same_bits ? ", same bits"
                  : "");
}

plan::Plan Draw::one_rank() const {
  plan::Plan one = plan.plain();
  one.microbatches = microbatches;
  one.fewer_microbatches.clear();
  return one;
}

test::Batch Draw::batch(const plan::Plan& layout, int data_rank) const {
  test::Batch batch;
  const RandomKey key = RandomKey(seed).with("tokens");
  const int64_t width = kSequence + 1 + model.num_nextn_predict_layers;
  for (int m = 0; m < microbatches / layout.mesh.dp; ++m) {
    runtime::Microbatch& micro = batch.microbatches.emplace_back();
    micro.first_sequence = (m * layout.mesh.dp + data_rank) * kSequences;
    for (int64_t i = 0; i < kSequences && layout.objective.of_pairs(); ++i) {
      const auto at = static_cast<uint64_t>(micro.first_sequence + i);
      micro.references.push_back(100 + 3 * RandomKey(seed).with("references").normal(at));
    }
    for (int64_t i = 0; i < kSequences * width; ++i) {
      const auto at = static_cast<uint64_t>((m * layout.mesh.dp + data_rank) * kSequences * width + i);
      const uint64_t bits = key.bits(at);
      // Rows of zeros amid others have gradients as large as 1 ÷ epsilon, under which others' round to nothing in
      // the eight bits of a block.
      const bool padding =
          seed % 5 == 0 && plan.device.fp8 == passes::Fp8::off && i % width > width / 2 && bits % 3 == 0;
      micro.tokens.push_back(padding ? -1 : static_cast<int32_t>((bits >> 8) % static_cast<uint64_t>(token_kinds)));
      if (layout.weighs_labels) micro.weights.push_back(0.25f * static_cast<float>((bits >> 40) % 8));
      if (seed % 3 == 0) micro.masked.push_back(bits % 7 < 4);  // targets that don't count
    }
  }
  const bool of_pairs = layout.objective.of_pairs();
  const double tokens = static_cast<double>(microbatches * kSequences * kSequence);
  batch.scales = {of_pairs ? 2.0 / (microbatches * kSequences) : 1 / tokens,
                  1.0 / static_cast<double>(microbatches * kSequences), 1 / tokens};
  batch.scales.resize(3 + static_cast<size_t>(model.num_nextn_predict_layers), 0.3 / tokens);
  batch.hyper = {1e-3, 0.1, 0.05};
  batch.seed = seed;
  batch.step = 1;
  for (int64_t layer = 0; layer < model.num_hidden_layers + model.num_nextn_predict_layers; ++layer) {
    const RandomKey rows = key.with("rows").with(static_cast<uint64_t>(layer));
    for (int64_t e = 0; e < model.n_routed_experts; ++e)
      batch.expert_rows[static_cast<int>(layer)].push_back(
          static_cast<double>(rows.bits(static_cast<uint64_t>(e)) % 9));
    if (!layout.parallel.exchange.migrates() || layout.mesh.ep == 1) continue;
    // Experts live anywhere; as the step ends those of each place number change holders.
    std::vector<int32_t> now(static_cast<size_t>(model.n_routed_experts)), then = now;
    std::iota(now.begin(), now.end(), 0);
    const RandomKey homes = key.with("homes").with(static_cast<uint64_t>(layer));
    for (size_t i = now.size(); i-- > 1;) std::swap(now[i], now[homes.bits(i) % (i + 1)]);
    const auto places = static_cast<int32_t>(model.n_routed_experts / layout.mesh.ep);
    for (size_t e = 0; e < now.size(); ++e) {
      const int32_t place = now[e] % places,
                    by = 1 + static_cast<int32_t>(homes.bits(static_cast<uint64_t>(100 + place)) % 7);
      then[e] = (now[e] / places + by) % layout.mesh.ep * places + place;
    }
    batch.homes[static_cast<int>(layer)] = now;
    batch.next_homes[static_cast<int>(layer)] = then;
  }
  return batch;
}

double Draw::parameter(const model::Parameter& p, int64_t element, const std::vector<double>& rope_table) const {
  switch (p.start) {
    case model::Parameter::Start::rope_table:
      if (model::is_unit_gain(p.name)) return 1;
      if (model::is_zero_bias(p.name)) return 0;
      return rope_table[static_cast<size_t>(element) % rope_table.size()];
    case model::Parameter::Start::ones: return 1.0;
    case model::Parameter::Start::hashed_experts:
      return static_cast<double>(
          model::hashed_expert(RandomKey(seed).with(p.name), element, model.num_experts_per_tok, model.choices()));
    case model::Parameter::Start::zeros:
      if (!p.trained) return 0.0;
      break;  // a bias of 0 would show nothing
    default: break;
  }
  const auto normal = [&](int64_t i) {
    return 0.3 * RandomKey(seed).with(p.name).normal(static_cast<uint64_t>(i));
  };
  if (p.part != model::Parameter::Part::router) return normal(element);
  const int64_t expert = element / model.hidden_size, column = element % model.hidden_size;
  if (routing == Routing::ties) return normal(expert / 2 * model.hidden_size + column);
  if (routing == Routing::zeros && expert % 2 == 1) return 2000 * normal(element);
  return normal(element);
}

}  // namespace heddle::parity
