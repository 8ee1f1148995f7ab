// Draws of a factor on queries by position, of norms with gates, and of latents: further norms, queries from two of
// them, other widths in layers with a window. Included by draw.cpp alone.
#pragma once

#include <string>

#include "heddle/base/error.h"
#include "heddle/model/model_config.h"

namespace heddle::parity {

/// What is not valid beside the rest of the model stays as it was. `clips` says that logits of heads are clipped.
template <class Dice>
void draw_latents(model::ModelConfig& c, Dice dice, bool clips) {
  const auto keep_if_valid = [&](bool drawn, auto change) {
    const model::ModelConfig before = c;
    if (!drawn) return;
    change();
    try {
      model::validate(c);
    } catch (const ConfigError&) {
      c = before;
    }
  };
  keep_if_valid(dice.one_in(3) && !c.is_compressed(), [&] {
    c.query_scale_beta = 0.5;
    c.query_scale_length = dice.of({1, 5, 13});
    c.query_scale_first = dice.of({0, 0, 1, 7});
    c.query_scale_unturned = dice.one_in(3);
  });
  keep_if_valid(dice.one_in(4), [&] { c.gated_norm_rank = dice.of({1, 6}); });
  keep_if_valid(dice.one_in(4), [&] { c.experts_sum_norm = true; });
  if (!c.is_latent()) return;
  keep_if_valid(dice.one_in(4), [&] { c.latent_norm_eps = 1e-3; });
  keep_if_valid(dice.one_in(4), [&] { c.rotary_key_norm = true; });
  keep_if_valid(dice.one_in(4) && !clips, [&] {
    c.raw_latent_of_queries = true;
    c.attention_gate = model::AttentionGate::element;
  });
  if (c.sliding_window == 0) return;
  keep_if_valid(dice.one_in(2), [&] { c.window_attention_heads = 2 * c.num_attention_heads; });
  keep_if_valid(dice.one_in(2), [&] {
    c.window_kv_lora_rank = 6;
    c.window_qk_nope_head_dim = 10;
    c.window_v_head_dim = 2;
  });
  keep_if_valid(dice.one_in(2), [&] { c.window_q_lora_rank = 10; });
  keep_if_valid(dice.one_in(2), [&] {
    c.window_rope_theta = 100;
    c.window_qk_rope_head_dim = dice.of({0, 2, 6});
  });
}

inline std::string text_of_latents(const model::ModelConfig& c) {
  return std::string(c.query_scale_beta != 0 ? ", queries by position" : "") +
         (c.gated_norm_rank > 0 ? ", gated norms" : "") + (c.experts_sum_norm ? ", experts' sum normed" : "") +
         (c.rotary_key_norm ? ", rotary key normed" : "") +
         (c.raw_latent_of_queries ? ", queries from two latents" : "") +
         (c.is_latent() && c.window_kv_lora_rank > 0 ? ", latents of windows" : "") +
         (c.is_latent() && c.window_attention_heads > 0 ? ", heads of windows" : "") +
         (c.is_latent() && c.window_rope_theta > 0 ? ", rotation of windows" : "");
}

}  // namespace heddle::parity
