// Parts of Gemma 4, and streams of the residual, in drawn models; words of these, and of gates and factors.
#pragma once

#include <fmt/format.h>

#include <string>
#include <utility>

#include "heddle/base/error.h"
#include "heddle/model/model_config.h"

namespace heddle::parity {

/// In a third of the draws what Gemma 4 has, each part in half of them. Layers that share keys, and embeddings of
/// layers, stay where the pipeline lets them (keep_in_stages).
template <class Dice>
void draw_gemma(model::ModelConfig& c, Dice dice) {
  if (!dice.one_in(3)) return;
  const auto draw_part = [&](const auto& set) {
    const model::ModelConfig before = c;
    if (dice.one_in(2)) set();
    try {
      model::validate(c);
    } catch (const ConfigError&) {
      c = before;
    }
  };
  draw_part([&] { c.layer_scalars = true; });
  draw_part([&] { c.expert_norms = true; });
  draw_part([&] { c.expert_scales = true; });
  if (c.is_latent()) return;
  draw_part([&] { c.value_norm = true; });
  draw_part([&] { c.keys_are_values = true, c.value_head_dim = 0; });
  draw_part([&] { c.turning_pairs_factor = 0.5; });
  draw_part([&] { c.window_head_dim = 10 - c.head_dim, c.window_rope_theta = 100; });
  draw_part([&] {
    c.shared_key_value_layers = 1;
    if (dice.one_in(2)) c.sharing_intermediate_size = 48;
  });
  draw_part([&] { c.layer_embedding_size = dice.of({8, 12}); });
}

/// Layers take from one another, and from the embedding, within a stage alone.
template <class Fits>
void keep_in_stages(model::ModelConfig& c, const Fits& fits) {
  if (c.layer_embedding_size > 0 && !fits()) c.layer_embedding_size = 0;
  if (c.shared_key_value_layers > 0 && !fits()) c.shared_key_value_layers = c.sharing_intermediate_size = 0;
}

inline std::string text_of_gemma(const model::ModelConfig& c) {
  std::string text;
  for (const auto& [there, what] : {std::pair{c.layer_scalars, "scaled layers"},
                                    {c.expert_norms, "norms of experts"},
                                    {c.expert_scales, "scaled experts"},
                                    {c.value_norm, "normed values"},
                                    {c.keys_are_values, "keys as values"},
                                    {c.turning_pairs_factor < 1, "pairs that stand still"},
                                    {c.window_head_dim > 0, "windows of other widths"},
                                    {c.shared_key_value_layers > 0, "shared keys"},
                                    {c.sharing_intermediate_size > 0, "wider MLPs there"},
                                    {c.layer_embedding_size > 0, "embeddings of layers"}}) {
    if (there) text += std::string(", ") + what;
  }
  return text;
}

/// In a quarter of the draws each, gates by a map of their own and capped logits of routers; in half of those with
/// gates ln(1 + e^x) in place of sigmoids; in a third of those with biases of the choice these on logits.
template <class Dice>
void draw_gates_apart(model::ModelConfig& c, Dice dice) {
  const model::ModelConfig before = c;
  if (c.is_grouped() && dice.one_in(4)) c.attention_gate = model::AttentionGate::element_apart;
  c.attention_gate_softplus = c.is_grouped() && c.attention_gate != model::AttentionGate::none && dice.one_in(2);
  if (dice.one_in(4)) c.router_logit_cap = 2;  // a lower cap makes near ties of many logits
  c.bias_on_logits =
      c.topk_bias && c.n_group == 1 && c.bias_balance != model::BiasBalance::quantile && dice.one_in(3);
  try {
    model::validate(c);
  } catch (const ConfigError&) {
    c = before;
  }
}

inline std::string text_of_gates(const model::ModelConfig& c) {
  return fmt::format(
             ", latent {}, gates {}{}, factors {} {} {} {} {} {}, caps {} and {}, values of {}, {}{} windows of {} "
             "and {} "
             "heads, base {} of {}{}",
             c.moe_latent_size,
             std::string(word_of(c.attention_gate)) + (c.attention_gate_softplus ? " by softplus" : "") +
                 (c.router_logit_cap > 0 ? ", capped router" : "") + (c.bias_on_logits ? ", biased logits" : ""),
             c.shared_expert_gate ? " and shared" : "", c.embedding_multiplier, c.residual_multiplier,
             c.logits_divisor, c.value_multiplier, c.attention_scale, c.mlp_alpha_factor, c.final_logit_cap,
             c.attention_logit_cap, c.value_head_dim, c.qk_norm_all_heads ? "norms of all heads, " : "",
             c.qk_norm_after_rotation ? "norms after rotation, " : "", c.window_attention_heads,
             c.window_key_value_heads, c.window_rope_theta, c.window_rotary_factor,
             c.sinks_in_windows ? ", sinks there alone" : "") +
         text_of_gemma(c);
}

/// In a quarter of the draws where the rest of the model allows it, several streams of the residual.
template <class Dice>
void draw_streams(model::ModelConfig& c, Dice dice) {
  if (!dice.one_in(4)) return;
  const model::ModelConfig before = c;
  c.hyper_connections = dice.of({1, 2, 3, 4, 4});
  c.hyper_connections_iterations = dice.of({1, 2, 5, 20});
  c.hyper_connections_eps = dice.one_in(2) ? 1e-6 : 1e-2;
  if (dice.one_in(3)) {
    c.hyper_connections_kind = model::HyperConnection::independent;
    c.hyper_connections_iterations = model::ModelConfig().hyper_connections_iterations;
    c.hyper_connections_magnitude = dice.one_in(2) ? 2 : 1.25;
  }
  c.hyper_connections_mean = dice.one_in(3);
  try {
    model::validate(c);
  } catch (const ConfigError&) {
    c = before;
  }
}

inline std::string text_of_streams(const model::ModelConfig& c) {
  if (!c.has_streams()) return "";
  return fmt::format(", {} {} streams by {} iterations, at most {}", c.hyper_connections,
                     word_of(c.hyper_connections_kind), c.hyper_connections_iterations,
                     c.hyper_connections_magnitude) +
         (c.hyper_connections_mean ? ", the mean read" : "");
}

}  // namespace heddle::parity
