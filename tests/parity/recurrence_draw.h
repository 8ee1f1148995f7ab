// Which layers have what, a letter a layer, and what recurrent layers have besides: each in a part of the draws,
// from dice of its own.
#pragma once

#include "tests/parity/draw.h"

namespace heddle::parity {

/// Letters in place of what says which layers have a window or a recurrence; one layer attends if `attends`. Some
/// models with a recurrence have windows too.
template <class Dice>
void draw_letters(model::ModelConfig& c, Dice& dice, bool attends) {
  const bool windows = c.sliding_window > 0;
  if (windows && c.num_nextn_predict_layers > 0) c.nextn_blocks = "WE";
  const auto letter = static_cast<char>(windows ? model::LayerKind::window : model::LayerKind::recurrence);
  std::string letters;
  for (int64_t l = 0; l < c.num_hidden_layers; ++l) letters += dice.one_in(2) ? letter : '*';
  letters[0] = letter;
  if (attends) letters.back() = '*';
  if (letters[0] != letter) return;  // one layer alone
  if (!windows && !c.selects() && c.num_nextn_predict_layers == 0 && letters.find('*') != letters.npos &&
      dice.one_in(2)) {
    const bool all = dice.one_in(2);
    for (char& each : letters) each = each == '*' && (all || dice.one_in(2)) ? 'W' : each;
    if (letters.find('W') != letters.npos) c.sliding_window = dice.of({1, 5, 13, 60});
  }
  c.max_window_layers = c.full_attention_interval = c.full_attention_offset = 0;
  c.full_attention_last = false;
  c.layer_pattern = letters;
}

/// Short convolutions in place of the recurrence. `cuts`: ranks that have a part of the channels each.
template <class Dice>
void draw_short_convolutions(model::ModelConfig& c, Dice& dice, int64_t cuts) {
  if (c.hidden_size % cuts != 0) return;
  const model::ModelConfig usual;
  c.recurrence = model::Recurrence::short_convolution;
  c.linear_num_key_heads = usual.linear_num_key_heads, c.linear_num_value_heads = usual.linear_num_value_heads;
  c.linear_key_head_dim = usual.linear_key_head_dim, c.linear_value_head_dim = usual.linear_value_head_dim;
  c.linear_projections_apart = c.linear_full_gates = c.full_attention_last = false;
  c.linear_step_least = c.linear_step_most = c.linear_decay_least = 0;
  c.linear_bias = dice.one_in(2);
}

/// In half of the draws with the gated delta rule Mamba-2 in its place; in a quarter of all, layers of one block.
template <class Dice>
void draw_blocks(Draw& d, Dice dice) {
  model::ModelConfig& c = d.model;
  if (c.recurrence == model::Recurrence::gated_delta && dice.one_in(2)) {
    c.recurrence = model::Recurrence::mamba2;
    c.linear_projections_apart = false;
    if (dice.one_in(2)) c.linear_step_least = 0.5, c.linear_step_most = 0.9;
  }
  if (!dice.one_in(c.recurrence == model::Recurrence::mamba2 ? 2 : 4) || c.selects()) return;
  c.full_attention_interval = c.full_attention_offset = c.max_window_layers = 0;
  c.full_attention_last = false;
  const std::string letters = c.recurs() ? "M*-E" : "*-E";
  for (int64_t l = 0; l < c.num_hidden_layers; ++l)
    c.hybrid_override_pattern += letters[static_cast<size_t>(dice.below(static_cast<int>(letters.size())))];
  c.hybrid_override_pattern[0] = letters[0];
  if (d.plan.lora.rank > 0) c.hybrid_override_pattern.back() = '*';
}

/// Further parts of Mamba-2; in half of the draws where the model allows it attention beside it in each layer.
template <class Dice>
void draw_mamba_parts(model::ModelConfig& c, Dice dice) {
  c.linear_norm = static_cast<model::RecurrentNorm>(dice.of({0, 0, 1, 2}));
  if (dice.one_in(3)) c.linear_in_multiplier = 1.25;
  if (dice.one_in(3)) c.linear_part_multipliers = "0.7, 1.3, 0.5, 1.5, 0.9";
  const bool may = !c.is_hybrid() && !c.selects() && c.norm_places != model::NormPlaces::mixed && dice.one_in(2);
  if (!may) return;
  c.recurrence_beside_attention = true;
  c.layer_pattern.clear();
  c.sliding_window = c.full_attention_interval = 0;
  c.linear_attn_alpha_factor = 1;
}

template <class Dice>
void draw_recurrent_parts(Draw& d, Dice dice) {
  model::ModelConfig& c = d.model;
  const bool letters = dice.one_in(3), mixed = dice.one_in(4), convolutions = dice.one_in(4);
  const bool may = !c.is_hybrid() && !c.is_compressed() && c.shared_key_value_layers == 0;
  if (c.recurs()) {
    const plan::Degrees& mesh = d.plan.mesh;
    const int64_t cuts = mesh.tp * (d.plan.parallel.context == model::Context::ulysses ? mesh.cp : 1);
    if (convolutions && c.is_grouped()) draw_short_convolutions(c, dice, cuts);
    if (c.has_states() && c.recurrence != model::Recurrence::lightning && dice.one_in(3)) c.linear_norm_eps = 3e-2;
    if (c.recurrence == model::Recurrence::mamba2) c.linear_bias = dice.one_in(2);
    if (c.recurrence == model::Recurrence::gated_delta) {
      c.linear_double_beta = dice.one_in(2);
      c.linear_tensors_apart = c.linear_projections_apart && dice.one_in(2);
    }
    if (may && mixed && !c.parallel_blocks) c.norm_places = model::NormPlaces::mixed;
  }
  if (letters && may && (c.recurs() || c.sliding_window > 0)) draw_letters(c, dice, d.plan.lora.rank > 0);
  if (c.recurrence == model::Recurrence::mamba2) draw_mamba_parts(c, Dice(d.seed, "parts of Mamba-2"));
}

inline std::string text_of_recurrent_parts(const model::ModelConfig& c) {
  return std::string(c.layer_pattern.empty() ? "" : ", layers ") + c.layer_pattern +
         (c.linear_norm_eps > 0 ? ", an epsilon of their norm" : "") + (c.linear_bias ? ", biased" : "") +
         (c.recurrence_beside_attention ? ", beside attention" : "") +
         (c.linear_norm == model::RecurrentNorm::gated ? "" : fmt::format(", norm {}", word_of(c.linear_norm))) +
         (c.linear_in_multiplier == 1 ? "" : ", factor on what it reads") +
         (c.linear_part_multipliers.empty() ? "" : ", factors of parts") +
         (c.linear_double_beta ? ", twice beta" : "") + (c.linear_tensors_apart ? ", tensors apart" : "");
}

}  // namespace heddle::parity
