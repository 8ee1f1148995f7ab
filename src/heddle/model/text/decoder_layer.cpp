#include "heddle/model/text/decoder_layer.h"

#include "heddle/model/text/experts.h"
#include "heddle/model/text/feed_forward.h"
#include "heddle/model/text/gated_delta.h"
#include "heddle/model/text/grouped_attention.h"
#include "heddle/model/text/kimi_delta.h"
#include "heddle/model/text/latent_attention.h"
#include "heddle/model/text/lightning.h"
#include "heddle/model/text/mamba2.h"

namespace heddle::model {

using ir::ValueId;

namespace {

// The released names of a layer's norms; null where the model has none.
struct LayerNorms {
  const char *before_attention, *after_attention, *before_mlp, *after_mlp;
};

LayerNorms norms_of(NormPlaces places) {
  constexpr const char *kInput = "input_layernorm", *kAfter = "post_attention_layernorm";
  constexpr const char *kAheadOfMlp = "pre_feedforward_layernorm", *kAfterMlp = "post_feedforward_layernorm";
  switch (places) {
    case NormPlaces::before:
    case NormPlaces::stream: return {kInput, nullptr, kAfter, nullptr};
    case NormPlaces::after: return {nullptr, kAfter, nullptr, kAfterMlp};
    case NormPlaces::both: break;
  }
  return {kInput, kAfter, kAheadOfMlp, kAfterMlp};
}

// Released folders hold both layers of a pair under one number, with theirs behind the names of what each has.
std::string part_of_pair(const ModelConfig& c, int64_t index) {
  return c.shortcut_experts ? fmt::format("{}.", index % 2) : "";
}

// Attention, or what the layer has in its place.
ValueId mixed_tokens(Writer& w, int64_t index, ValueId n_TH, const std::string& prefix) {
  const ModelConfig& c = w.config();
  const std::string attention = prefix + "self_attn." + part_of_pair(c, index);
  switch (c.is_recurrent(index) ? c.recurrence : Recurrence::none) {
    case Recurrence::gated_delta: return gated_delta(w, n_TH, prefix + "linear_attn.");
    case Recurrence::kimi_delta: return kimi_delta(w, n_TH, attention);
    case Recurrence::lightning: return lightning(w, n_TH, attention);
    case Recurrence::mamba2: return mamba2(w, n_TH, prefix + "linear_attn.");
    case Recurrence::none: break;
  }
  return c.is_latent() ? latent_attention(w, n_TH, attention) : grouped_attention(w, n_TH, attention);
}

// An MLP, and in a pair's first layer experts of the same rows, which travel while the MLP runs. What they made is
// added behind the second layer (Cai et al., arXiv 2404.05019).
ValueId shortcut_blocks(Writer& w, int64_t index, ValueId n_TH, const std::string& prefix,
                        const ReplicasAhead& copies, ValueId& shortcut) {
  const auto mlp = [&] {
    const std::string name = prefix + "mlps." + part_of_pair(w.config(), index);
    return feed_forward(w, n_TH, name, w.config().intermediate_size, "m", OpPart::mlp);
  };
  if (!w.config().begins_pair(index)) return mlp();
  ValueId m_TH = ir::none;
  shortcut = experts(w, n_TH, prefix + "mlp.", copies, [&] { m_TH = mlp(); });
  return m_TH;
}

}  // namespace

std::string layer_prefix(const ModelConfig& config, int64_t index) {
  if (config.recurs() && index >= config.num_hidden_layers)
    return fmt::format("mtp.layers.{}.", index - config.num_hidden_layers);
  return fmt::format("model.layers.{}.", config.shortcut_experts ? index / 2 : index);
}

ValueId decoder_layer(Writer& w, int64_t index, ValueId x_TH, ValueId& shortcut) {
  const ModelConfig& c = w.config();
  w.begin_layer(index);
  const std::string prefix = layer_prefix(c, index), blocks = c.blocks_of(index);
  const ReplicasAhead copies = c.is_moe(index) ? replicas_ahead(w, prefix + "mlp.") : ReplicasAhead();
  const LayerNorms norms = norms_of(c.norm_places);
  const auto normed = [&](ValueId x, const char* name, const char* out) {
    return name == nullptr ? x : w.norm(x, prefix + name + "." + part_of_pair(c, index) + "weight", out);
  };
  const bool goes_on_normed = c.norm_places == NormPlaces::stream;
  const size_t sums = c.shortcut_experts ? 2 : blocks.size();
  for (size_t i = 0; i < sums; ++i) {
    const bool joins = c.shortcut_experts && i == 1 && !c.begins_pair(index);
    const char* sum = i + 1 < sums ? "x_mid" : joins ? "x_ahead" : "x";
    if (const auto block = static_cast<Block>(blocks[i]); block == Block::attention || block == Block::recurrence) {
      const bool recurs = block == Block::recurrence;
      const double alpha = recurs ? c.linear_attn_alpha_factor : c.full_attn_alpha_factor;
      const double beta = recurs ? c.linear_attn_beta_factor : c.full_attn_beta_factor;
      const ValueId n_TH = normed(x_TH, norms.before_attention, "n");
      ValueId a_TH = normed(mixed_tokens(w, index, n_TH, prefix), norms.after_attention, "a_normed");
      a_TH = w.scaled(w.dropout(a_TH, Writer::Site::attention, "a_kept"), beta * c.residual_multiplier, "a_scaled");
      x_TH = w.op("add", {w.scaled(goes_on_normed ? n_TH : x_TH, alpha, "x_scaled"), a_TH}, {sum})[0];
    } else {
      const ValueId n_TH = normed(x_TH, norms.before_mlp, "n_mid");
      ValueId y_TH = c.shortcut_experts ? shortcut_blocks(w, index, n_TH, prefix, copies, shortcut)
                     : block == Block::experts
                         ? experts(w, n_TH, prefix + "mlp.", copies)
                         : feed_forward(w, n_TH, prefix + "mlp.", c.intermediate_size, "y", OpPart::mlp);
      y_TH = normed(y_TH, norms.after_mlp, "y_normed");
      y_TH = w.scaled(w.dropout(y_TH, Writer::Site::mlp, "y_kept"), c.mlp_beta_factor * c.residual_multiplier,
                      "y_scaled");
      const ValueId stream_TH = w.scaled(goes_on_normed ? n_TH : x_TH, c.mlp_alpha_factor, "x_mid_scaled");
      x_TH = w.op("add", {stream_TH, y_TH}, {sum})[0];
      if (joins) x_TH = w.op("add", {x_TH, shortcut}, {"x"})[0];
    }
  }
  return x_TH;
}

}  // namespace heddle::model
