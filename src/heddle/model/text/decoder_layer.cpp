#include "heddle/model/text/decoder_layer.h"

#include "heddle/model/text/experts.h"
#include "heddle/model/text/feed_forward.h"
#include "heddle/model/text/grouped_attention.h"
#include "heddle/model/text/latent_attention.h"

namespace heddle::model {

using ir::ValueId;

ValueId decoder_layer(Writer& w, int64_t index, ValueId x_TH) {
  const ModelConfig& c = w.config();
  w.begin_layer(index);
  const std::string prefix = fmt::format("model.layers.{}.", index);
  const CopiesAhead copies = c.is_moe(index) ? copies_ahead(w, prefix + "mlp.") : CopiesAhead();
  const ValueId n_TH = w.norm(x_TH, prefix + "input_layernorm.weight", "n");
  const auto attention = c.is_latent() ? latent_attention : grouped_attention;
  const ValueId a_TH = w.dropout(attention(w, n_TH, prefix + "self_attn."), Writer::Site::attention, "a_kept");
  const ValueId x2_TH = w.op("add", {x_TH, a_TH}, {"x_mid"})[0];
  const ValueId n2_TH = w.norm(x2_TH, prefix + "post_attention_layernorm.weight", "n_mid");
  const ValueId y_TH = c.is_moe(index)
                           ? experts(w, n2_TH, prefix + "mlp.", copies)
                           : feed_forward(w, n2_TH, prefix + "mlp.", c.intermediate_size, "y", OpPart::mlp);
  return w.op("add", {x2_TH, w.dropout(y_TH, Writer::Site::mlp, "y_kept")}, {"x"})[0];
}

}  // namespace heddle::model
