// Heads of queries and those of keys and values are cut among tp alike. What goes between ranks of cp are keys,
// with their positions, and values.
#include "heddle/model/text/grouped_attention.h"

#include <optional>

#include "heddle/model/text/attend.h"
#include "heddle/model/text/block_indexer.h"
#include "heddle/model/text/head_norm.h"
#include "heddle/model/text/indexer.h"
#include "heddle/model/text/rotate.h"

namespace heddle::model {

using ir::ValueId;

namespace {

// Norms head by head, or of all heads as one row.
ValueId normed_heads(Writer& w, ValueId x_UD, const std::string& name, const std::string& out) {
  const ModelConfig& c = w.config();
  return c.qk_norm_all_heads ? norm_of_all_heads(w, x_UD, name, out, c.rms_norm_eps)
                             : w.norm(x_UD, name, out, c.rms_norm_eps, c.head_dim_of(w.layer()));
}

// A key that several heads share stays, as Kimi K2's rotary key does: the factor of one is nothing to the others.
// So does one that is a value, or another layer's too.
bool follows_one_head(const ModelConfig& c, int64_t layer) {
  return c.heads_of(layer) == c.kv_heads_of(layer) && !c.shares_keys(layer) && c.shared_key_value_layers == 0;
}

}  // namespace

ValueId grouped_attention(Writer& w, ValueId n_TH, const std::string& prefix) {
  const ModelConfig& c = w.config();
  const int64_t width = c.head_dim_of(w.layer()), value_width = c.value_width_of(w.layer());
  const int64_t all_heads = c.heads_of(w.layer()), all_kv_heads = c.kv_heads_of(w.layer());
  HeadSizes sizes{all_heads / w.tp(), all_kv_heads / w.tp(), width, value_width};
  if (c.has_sinks(w.layer())) {
    sizes.sinks = w.parameter({.name = prefix + "sinks",
                               .part = kAttention,
                               .deviation = c.initializer_range,
                               .cuts = {{0, ir::Axis::tp}}},
                              w.wide(), {all_heads});
  }
  const ValueId all_UH = w.gather(n_TH, "n");
  std::optional<Writer::Part> part(std::in_place, w, OpPart::queries_keys);
  const ValueId n_UH = w.scaled(all_UH, c.attention_in_multiplier, "n_attended");
  const auto heads = [&](const std::string& letter, int64_t columns) {
    return w.column_linear(n_UH, kAttention, prefix, letter + "_proj", columns,
                           c.attention_bias != AttentionBias::none);
  };
  const auto placed = [&](ValueId x, const std::string& letter, int64_t count) {
    if (c.qk_unit_norm && c.turns_in(w.layer()))
      return w.unit_norm(rotate(w, x, count, width, letter + "_turned"), letter, width);
    if (!c.qk_norm) return rotate(w, x, count, width, letter);
    const std::string name = prefix + letter + "_norm.weight";
    if (c.qk_norm_after_rotation)
      return normed_heads(w, rotate(w, x, count, width, letter + "_turned"), name, letter);
    return rotate(w, normed_heads(w, x, name, letter + "_normed"), count, width, letter);
  };
  const bool by_element = c.attention_gate == AttentionGate::element;
  ValueId q_raw = heads("q", all_heads * width + (by_element ? all_heads * value_width : 0)), gate = ir::none;
  if (by_element) {  // each head's query, then its gate
    const auto parts = w.op("split", {q_raw}, {"q_raw", "gate"}, {{"first", width}, {"runs", sizes.heads}});
    q_raw = parts[0];
    gate = parts[1];
  }
  const ValueId q = scaled_queries(w, placed(q_raw, "q", sizes.heads));
  Writer::KeysValues made = w.kept_keys();
  const bool makes_keys = c.makes_keys(w.layer());
  if (makes_keys) {
    const ValueId k_raw = heads("k", all_kv_heads * width);
    made.k = placed(w.scaled(k_raw, c.key_multiplier, "k_scaled"), "k", sizes.kv_heads);
    made.v = c.shares_keys(w.layer()) ? k_raw : heads("v", all_kv_heads * value_width);
    if (c.value_norm) made.v = w.unit_norm(made.v, "v_normed", value_width);
    made.v = w.scaled(made.v, c.value_multiplier, "v_scaled");
  }
  const ValueId k = made.k, v = made.v;
  const bool own_key = follows_one_head(c, w.layer());
  const double power = own_key ? 0.5 : 1;
  w.scales_with_heads(prefix, "q_proj", {width + (by_element ? value_width : 0), width, power, 0});
  if (own_key) w.scales_with_heads(prefix, "k_proj", {width, width, power, 0});
  if (c.attention_gate == AttentionGate::head || c.attention_gate == AttentionGate::element_apart) {
    const int64_t gates = c.attention_gate == AttentionGate::head ? 1 : value_width;
    gate = w.column_linear(n_UH, kAttention, prefix, "g_proj", all_heads * gates);
  }
  part.reset();

  if (makes_keys && w.caches()) {
    made.k_cache = w.cache("k", w.columns(k));
    made.v_cache = w.cache("v", w.columns(v));
    w.keep_rows(k, made.k_cache);
    w.keep_rows(v, made.v_cache);
  }
  w.keep_keys(made);
  ValueId o;
  if (c.selects_in(w.layer()) && (chooses_in(w) || !w.decodes())) {
    const Index index = index_blocks(w, {n_TH, all_UH, n_TH}, prefix);
    const auto whole = [&](ValueId rows, const char* name) {
      return w.cp() > 1 ? gather_sequence(w, rows, name, w.cp()) : rows;
    };
    o = w.decodes() ? attend_chosen_of_cache(w, q, made.k_cache, made.v_cache, sizes)
                    : attend_chosen(w, index, q, whole(k, "k"), whole(v, "v"), sizes);
  } else if (w.decodes()) {
    o = attend_cached(w, q, made.k_cache, made.v_cache, sizes);
  } else if (w.cp() == 1) {
    o = attend(w, q, k, v, sizes, "o").o;
  } else {
    const int64_t parts = w.head_ranks();
    const auto by_heads = [&](ValueId x, const char* name) {
      return parts > 1 ? heads_to_sequence(w, x, name, parts) : x;
    };
    const Travelling keys{by_heads(k, "k_heads"), "k"}, values{by_heads(v, "v_heads"), "v"};
    sizes.heads /= parts;
    sizes.kv_heads /= parts;
    o = attend_across(
        w, q, {keys, values}, [](const std::vector<ValueId>& rows) { return rows; }, sizes);
  }
  if (gate != ir::none) {
    ir::Attributes function;
    if (c.attention_gate_softplus) function.set("softplus", int64_t{1});
    o = w.op("sigmoid_gate", {o, gate}, {"o_gated"}, std::move(function))[0];
  }
  return w.row_linear(o, kAttention, prefix, "o_proj", all_heads * value_width, "o_proj",
                      c.attention_bias == AttentionBias::all);
}

}  // namespace heddle::model
