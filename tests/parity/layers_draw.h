// Draws of what layers are made of: attention and MLP side by side, chunks, which layers turn or have experts,
// gates on what experts read. Included by draw.cpp alone.
#pragma once

#include <algorithm>
#include <string>

#include "heddle/base/error.h"
#include "heddle/model/model_config.h"
#include "tests/parity/draw.h"

namespace heddle::parity {

/// What is not valid beside the rest of the model stays as it was. With `drops_none` no capacity follows from how
/// many experts a token has.
template <class Dice>
void draw_layers(model::ModelConfig& c, Dice dice, bool drops_none) {
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
  const auto pattern = [&](char often, char seldom) {
    std::string letters;
    for (int64_t l = 0; l < c.num_hidden_layers; ++l) letters += dice.one_in(3) ? seldom : often;
    return letters;
  };
  keep_if_valid(dice.one_in(4), [&] {
    c.parallel_blocks = true;
    c.norm_places = model::NormPlaces::before;
    c.full_attn_alpha_factor = c.linear_attn_alpha_factor = c.mlp_alpha_factor = 1;
  });
  keep_if_valid(dice.one_in(2), [&] { c.norm_bias = false; });
  keep_if_valid(dice.one_in(2), [&] { c.window_chunks = true; });
  keep_if_valid(dice.one_in(3), [&] {
    c.rotation_pattern = pattern('R', '-');
    c.no_rope_layer_interval = 0;
  });
  keep_if_valid(dice.one_in(3), [&] {
    c.qk_unit_norm = true;
    c.qk_norm = c.qk_norm_all_heads = c.qk_norm_after_rotation = false;
  });
  keep_if_valid(dice.one_in(3) && c.has_experts() && c.num_hash_layers == 0, [&] {
    c.mlp_pattern = pattern('E', '-');
    c.mlp_pattern.back() = 'E';
  });
  keep_if_valid(dice.one_in(3) && drops_none, [&] {
    c.gates_on_inputs = true;
    c.num_experts_per_tok = 1;
    c.norm_topk_prob = false;
  });
  keep_if_valid(dice.one_in(3), [&] { c.shared_expert_average = true; });
  keep_if_valid(dice.one_in(4) && c.is_grouped(), [&] { c.key_multiplier = 0.7; });
  keep_if_valid(dice.one_in(4) && c.is_grouped(), [&] { c.attention_in_multiplier = 1.3; });
  keep_if_valid(dice.one_in(4), [&] { c.mlp_gate_multiplier = 0.6; });
}

/// Layers of further tokens in a third of the draws that have none; in half of all that have such layers, letters
/// of what these have.
template <class Dice>
void draw_further(Draw& d, Dice dice) {
  model::ModelConfig& c = d.model;
  const bool adds = dice.one_in(3), letters = dice.one_in(2);
  const model::ModelConfig before = c;
  if (adds && c.num_nextn_predict_layers == 0 && !d.plan.objective.of_pairs()) c.num_nextn_predict_layers = 1;
  if (letters && c.num_nextn_predict_layers > 0) {
    const std::string kinds = std::string("*") + (c.sliding_window > 0 ? "W" : "") + (c.recurs() ? "M" : "");
    const char kind = kinds[static_cast<size_t>(dice.below(static_cast<int>(kinds.size())))];
    c.nextn_blocks = {c.is_compressed() ? 'W' : kind, dice.one_in(2) || !c.has_experts() ? '-' : 'E'};
  }
  try {
    model::validate(c);
  } catch (const ConfigError&) {
    c = before;
  }
}

inline std::string text_of_layers(const model::ModelConfig& c) {
  return std::string(c.parallel_blocks ? ", blocks side by side" : "") +
         (c.norm_bias ? "" : ", norms without bias") + (c.window_chunks ? ", windows are chunks" : "") +
         (c.rotation_pattern.empty() ? "" : ", turned " + c.rotation_pattern) +
         (c.qk_unit_norm ? ", heads normed without a gain" : "") +
         (c.mlp_pattern.empty() ? "" : ", experts in " + c.mlp_pattern) +
         (c.key_multiplier == 1 ? "" : ", factor on keys") +
         (c.attention_in_multiplier == 1 ? "" : ", factor on what attention reads") +
         (c.mlp_gate_multiplier == 1 ? "" : ", factor on gates of MLPs") +
         (c.gates_on_inputs ? ", gates on inputs" : "") +
         (c.shared_expert_average ? ", the mean with shared experts" : "");
}

/// What a rounding of fp32 turns over, or fp32 has no number for, goes.
inline void keep_in_fp32(Draw& d) {
  model::ModelConfig& c = d.model;
  c.swiglu_limit = c.experts_limit = c.mlp_limit = c.mlp_limit_last = 0;
  c.experts_limit_layer = c.mlp_limit_layer = c.mlp_limit_last_layer = 0;
  c.limited_gates = false;
  // Each norm multiplies a lone zero row's gradient by the root of 1 ÷ epsilon.
  if (d.plan.document_end >= 0) c.rms_norm_eps = 1e-2;
}

}  // namespace heddle::parity
