#include "heddle/model/text/decoder_layer.h"

#include "heddle/model/ngrams.h"
#include "heddle/model/text/compressed_attention.h"
#include "heddle/model/text/experts.h"
#include "heddle/model/text/feed_forward.h"
#include "heddle/model/text/gated_delta.h"
#include "heddle/model/text/grouped_attention.h"
#include "heddle/model/text/kimi_delta.h"
#include "heddle/model/text/latent_attention.h"
#include "heddle/model/text/lightning.h"
#include "heddle/model/text/mamba2.h"
#include "heddle/model/text/ngram_embedding.h"
#include "heddle/model/text/short_convolution.h"
#include "heddle/model/text/streams.h"

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
    case NormPlaces::both:
    case NormPlaces::mixed: break;
  }
  return {kInput, kAfter, kAheadOfMlp, kAfterMlp};
}

// Released folders hold both layers of a pair under one number, with theirs behind the names of what each has.
std::string part_of_pair(const ModelConfig& c, int64_t index) {
  return c.in_pairs(index) ? fmt::format("{}.", index % 2) : "";
}

// A norm, and the sigmoid of a narrow MLP on what it makes (A.X-K2). `name` is that of both, without a dot.
ValueId gated_norm(Writer& w, ValueId x_TH, const std::string& name, const std::string& out) {
  const auto matrix = [&](const char* which, int64_t n, int64_t k) {
    return w.matrix(Parameter::Part::mlp, fmt::format("{}.{}.weight", name, which), n, k);
  };
  const int64_t rank = w.config().gated_norm_rank, hidden = w.config().hidden_size;
  const ValueId n_TH = w.norm(x_TH, name + ".norm.weight", out + "_ungated");
  const ValueId a = w.op("linear", {n_TH, matrix("W_down", rank, hidden)}, {out + "_narrow"})[0];
  const ValueId b = w.op("silu", {a}, {out + "_silu"})[0];
  const ValueId gate = w.op("linear", {b, matrix("W_up", hidden, rank)}, {out + "_gate"})[0];
  return w.op("sigmoid_gate", {n_TH, gate}, {out})[0];
}

// Attention, or the recurrence of the layer.
ValueId mixed_tokens(Writer& w, int64_t index, bool recurs, ValueId n_TH, const std::string& prefix) {
  const ModelConfig& c = w.config();
  const std::string attention = prefix + "self_attn." + part_of_pair(c, index);
  switch (recurs ? c.recurrence : Recurrence::none) {
    case Recurrence::gated_delta: return gated_delta(w, n_TH, prefix + "linear_attn.");
    case Recurrence::kimi_delta: return kimi_delta(w, n_TH, attention);
    case Recurrence::lightning: return lightning(w, n_TH, attention);
    case Recurrence::mamba2: return mamba2(w, n_TH, prefix + "linear_attn.");
    case Recurrence::short_convolution: return short_convolution(w, n_TH, prefix + "linear_attn.");
    case Recurrence::none: break;
  }
  if (c.is_compressed()) return compressed_attention(w, n_TH, attention);
  return c.is_latent() ? latent_attention(w, n_TH, attention) : grouped_attention(w, n_TH, attention);
}

// The sum of what both make of the same rows, by their factors.
ValueId mixed_twice(Writer& w, int64_t index, ValueId n_TH, const std::string& prefix) {
  const ModelConfig& c = w.config();
  const ValueId a_TH = mixed_tokens(w, index, false, n_TH, prefix),
                m_TH = mixed_tokens(w, index, true, n_TH, prefix);
  return w.op("add",
              {w.scaled(m_TH, c.linear_attn_beta_factor, "recurred_scaled"),
               w.scaled(a_TH, c.full_attn_beta_factor, "attended_scaled")},
              {"mixed"})[0];
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
  shortcut = experts(w, n_TH, ir::none, prefix + "mlp.", copies, [&] { m_TH = mlp(); });
  return m_TH;
}

// The last block of a layer with embeddings of its own, which what the layer makes gates (Gemma 3n).
ValueId embedding_block(Writer& w, ValueId x_TH, ValueId e_TP, const std::string& prefix, const std::string& sum) {
  const Writer::Part part(w, OpPart::mlp);
  constexpr auto kOf = Parameter::Part::mlp;
  const ValueId g_TP = w.linear(x_TH, kOf, prefix, "per_layer_input_gate", w.columns(e_TP));
  const ValueId m_TP = w.op("multiply", {gate_function(w, g_TP, "e_gate"), e_TP}, {"e_gated"})[0];
  const ValueId y_TH = w.linear(m_TP, kOf, prefix, "per_layer_projection", w.config().hidden_size);
  return w.op("add", {x_TH, w.norm(y_TH, prefix + "post_per_layer_input_norm.weight", "e_normed")}, {sum})[0];
}

}  // namespace

std::string layer_prefix(const ModelConfig& config, int64_t index) {
  const int64_t further = index - config.num_hidden_layers;
  if (further >= 0 && config.names_further_layers_apart()) return fmt::format("mtp.layers.{}.", further);
  return fmt::format("model.layers.{}.", config.in_pairs(index) ? index / 2 : index);
}

ValueId decoder_layer(Writer& w, int64_t index, ValueId x_TH, ValueId& shortcut) {
  const ModelConfig& c = w.config();
  w.begin_layer(index);
  const std::string prefix = layer_prefix(c, index), blocks = c.blocks_of(index);
  const ReplicasAhead copies = c.is_moe(index) ? replicas_ahead(w, prefix + "mlp.") : ReplicasAhead();
  const LayerNorms norms = c.has_gated_streams() ? LayerNorms{} : norms_of(c.norm_places_of(index));
  const auto normed = [&](ValueId x, const char* name, const char* out) {
    return name == nullptr ? x : w.norm(x, prefix + name + "." + part_of_pair(c, index) + "weight", out);
  };
  const auto ahead = [&](ValueId x, const char* name, const char* out, bool gated) {
    return gated && c.gated_norm_rank > 0 ? gated_norm(w, x, prefix + name, out) : normed(x, name, out);
  };
  if (ngram_index(c, index) >= 0) x_TH = add_ngrams(w, index, x_TH, prefix);
  const bool goes_on_normed = c.norm_places == NormPlaces::stream;
  const bool in_pairs = c.in_pairs(index);
  const size_t sums = in_pairs ? 2 : blocks.size();
  const bool embeds = c.layer_embedding_size > 0 && index < c.num_hidden_layers;
  const char* const end = embeds || c.layer_scalars ? "x_blocks" : "x";
  ValueId both_TH = ir::none;  // what both blocks read, where they are side by side
  for (size_t i = 0; i < sums; ++i) {
    const bool joins = in_pairs && i == 1 && !c.begins_pair(index);
    const char* sum = i + 1 < sums ? "x_mid" : joins ? "x_ahead" : end;
    if (const auto block = static_cast<Block>(blocks[i]); block == Block::attention || block == Block::recurrence) {
      const bool recurs = block == Block::recurrence, twice = c.mixes_twice(index);
      if (recurs && twice) continue;  // it goes with attention
      const double alpha = recurs ? c.linear_attn_alpha_factor : c.full_attn_alpha_factor;
      const double beta = twice ? 1 : recurs ? c.linear_attn_beta_factor : c.full_attn_beta_factor;
      const BlockInput in = read_streams(w, x_TH, prefix, "attn");
      const ValueId n_TH = ahead(in.x_TH, norms.before_attention, "n", !recurs);
      both_TH = n_TH;
      ValueId a_TH = twice ? mixed_twice(w, index, n_TH, prefix) : mixed_tokens(w, index, recurs, n_TH, prefix);
      a_TH = normed(a_TH, norms.after_attention, "a_normed");
      a_TH = w.scaled(w.dropout(a_TH, Writer::Site::attention, "a_kept"), beta * c.residual_multiplier, "a_scaled");
      x_TH = write_streams(w, w.scaled(goes_on_normed ? n_TH : x_TH, alpha, "x_scaled"), a_TH, in, sum);
    } else {
      const BlockInput in = read_streams(w, x_TH, prefix, c.has_gated_streams() ? "mlp" : "ffn");
      const ValueId n_TH =
          c.parallel_blocks ? both_TH : ahead(in.x_TH, norms.before_mlp, "n_mid", block == Block::experts);
      ValueId y_TH = in_pairs ? shortcut_blocks(w, index, n_TH, prefix, copies, shortcut)
                     : block == Block::experts
                         ? experts(w, n_TH, in.x_TH, prefix + "mlp.", copies)
                         : feed_forward(w, n_TH, prefix + "mlp.", c.mlp_width_of(index), "y", OpPart::mlp);
      const bool sum_norm = c.experts_sum_norm && block == Block::experts;
      y_TH = normed(y_TH, sum_norm ? "post_mlp_layernorm" : norms.after_mlp, "y_normed");
      y_TH = w.scaled(w.dropout(y_TH, Writer::Site::mlp, "y_kept"), c.mlp_beta_factor * c.residual_multiplier,
                      "y_scaled");
      const ValueId stream_TH = w.scaled(goes_on_normed ? n_TH : x_TH, c.mlp_alpha_factor, "x_mid_scaled");
      x_TH = write_streams(w, stream_TH, y_TH, in, sum);
      if (joins) x_TH = w.op("add", {x_TH, shortcut}, {end})[0];
    }
  }
  if (embeds) {
    const ValueId e_TP = w.layer_rows().at(static_cast<size_t>(index));
    x_TH = embedding_block(w, x_TH, e_TP, prefix, c.layer_scalars ? "x_embedded" : "x");
  }
  if (!c.layer_scalars) return x_TH;
  const ValueId s = w.parameter({.name = prefix + "layer_scalar",
                                 .part = Parameter::Part::norm,
                                 .start = Parameter::Start::ones,
                                 .trained = false},
                                w.wide(), {1});
  return w.op("scale_by", {x_TH, s}, {"x"})[0];
}

}  // namespace heddle::model
