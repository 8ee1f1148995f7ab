// Heads of queries and those of keys and values are cut among tp alike. What goes between ranks of cp are keys,
// with their positions, and values.
#include "heddle/model/text/grouped_attention.h"

#include <optional>

#include "heddle/model/text/attend.h"
#include "heddle/model/text/rotate.h"

namespace heddle::model {

using ir::ValueId;

ValueId grouped_attention(Writer& w, ValueId n_TH, const std::string& prefix) {
  constexpr auto kAttention = Parameter::Part::attention;
  const ModelConfig& c = w.config();
  const int64_t width = c.head_dim;
  HeadSizes sizes{c.num_attention_heads / w.tp(), c.num_key_value_heads / w.tp(), width, width};
  if (c.attention_sinks) {
    sizes.sinks = w.parameter({.name = prefix + "sinks",
                               .part = kAttention,
                               .deviation = c.initializer_range,
                               .cuts = {{0, ir::Axis::tp}}},
                              w.wide(), {c.num_attention_heads});
  }
  const ValueId n_UH = w.gather(n_TH, "n");
  std::optional<Writer::Part> part(std::in_place, w, OpPart::queries_keys);
  const auto heads = [&](const std::string& letter, int64_t all) {
    return w.column_linear(n_UH, kAttention, prefix, letter + "_proj", all * width,
                           c.attention_bias != AttentionBias::none);
  };
  const auto placed = [&](ValueId x, const std::string& letter, int64_t count) {
    if (c.qk_norm) x = w.norm(x, prefix + letter + "_norm.weight", letter + "_normed", c.rms_norm_eps, width);
    return rotate(w, x, count, width, letter);
  };
  const ValueId q = placed(heads("q", c.num_attention_heads), "q", sizes.heads);
  const ValueId k = placed(heads("k", c.num_key_value_heads), "k", sizes.kv_heads);
  const ValueId v = heads("v", c.num_key_value_heads);
  part.reset();

  ValueId o, k_cache = ir::none, v_cache = ir::none;
  if (w.caches()) {
    k_cache = w.cache("k", w.columns(k));
    v_cache = w.cache("v", w.columns(v));
    w.keep_rows(k, k_cache);
    w.keep_rows(v, v_cache);
  }
  if (w.decodes()) {
    o = attend_cached(w, q, k_cache, v_cache, sizes);
  } else if (w.cp() == 1) {
    o = attend(w, q, k, v, sizes, "o");
  } else if (w.spec().context == Context::ulysses) {
    const ValueId q_heads = heads_to_sequence(w, q, "q_heads"), k_heads = heads_to_sequence(w, k, "k_heads");
    const ValueId v_heads = heads_to_sequence(w, v, "v_heads");
    const HeadSizes here{sizes.heads / w.cp(), sizes.kv_heads / w.cp(), width, width, sizes.sinks};
    const ValueId o_heads = attend(w, q_heads, k_heads, v_heads, here, "o_heads");
    o = sequence_to_heads(w, o_heads, "o");
  } else {
    o = attend_across(
        w, q, {{k, "k"}, {v, "v"}}, [](const std::vector<ValueId>& rows) { return rows; }, sizes);
  }
  return w.row_linear(o, kAttention, prefix, "o_proj", c.num_attention_heads * width, "o_proj",
                      c.attention_bias == AttentionBias::all);
}

}  // namespace heddle::model
