#include "heddle/model/text/decoder_layer.h"

#include "heddle/model/text/experts.h"
#include "heddle/model/text/feed_forward.h"
#include "heddle/model/text/gated_delta.h"
#include "heddle/model/text/grouped_attention.h"
#include "heddle/model/text/latent_attention.h"

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
    case NormPlaces::before: return {kInput, nullptr, kAfter, nullptr};
    case NormPlaces::after: return {nullptr, kAfter, nullptr, kAfterMlp};
    case NormPlaces::both: break;
  }
  return {kInput, kAfter, kAheadOfMlp, kAfterMlp};
}

}  // namespace

std::string layer_prefix(const ModelConfig& config, int64_t index) {
  if (config.recurs() && index >= config.num_hidden_layers)
    return fmt::format("mtp.layers.{}.", index - config.num_hidden_layers);
  return fmt::format("model.layers.{}.", index);
}

ValueId decoder_layer(Writer& w, int64_t index, ValueId x_TH) {
  const ModelConfig& c = w.config();
  w.begin_layer(index);
  const std::string prefix = layer_prefix(c, index);
  const ReplicasAhead copies = c.is_moe(index) ? replicas_ahead(w, prefix + "mlp.") : ReplicasAhead();
  const LayerNorms norms = norms_of(c.norm_places);
  const auto normed = [&](ValueId x, const char* name, const char* out) {
    return name == nullptr ? x : w.norm(x, prefix + name + ".weight", out);
  };
  const ValueId n_TH = normed(x_TH, norms.before_attention, "n");
  const auto attention = c.is_latent() ? latent_attention : grouped_attention;
  const ValueId mixed_TH = c.is_recurrent(index) ? gated_delta(w, n_TH, prefix + "linear_attn.")
                                                 : attention(w, n_TH, prefix + "self_attn.");
  ValueId a_TH = normed(mixed_TH, norms.after_attention, "a_normed");
  a_TH = w.scaled(w.dropout(a_TH, Writer::Site::attention, "a_kept"), c.residual_multiplier, "a_scaled");
  const ValueId x2_TH = w.op("add", {x_TH, a_TH}, {"x_mid"})[0];
  const ValueId n2_TH = normed(x2_TH, norms.before_mlp, "n_mid");
  ValueId y_TH = c.is_moe(index) ? experts(w, n2_TH, prefix + "mlp.", copies)
                                 : feed_forward(w, n2_TH, prefix + "mlp.", c.intermediate_size, "y", OpPart::mlp);
  y_TH = normed(y_TH, norms.after_mlp, "y_normed");
  y_TH = w.scaled(w.dropout(y_TH, Writer::Site::mlp, "y_kept"), c.residual_multiplier, "y_scaled");
  return w.op("add", {x2_TH, y_TH}, {"x"})[0];
}

}  // namespace heddle::model
