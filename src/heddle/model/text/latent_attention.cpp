// Latent and rotary key go between ranks of cp (576 numbers a token in DeepSeek-V3, keys and values 40960 ÷ tp).
// Each rank makes the keys and values of the whole sequence from them itself. In `ulysses` keys and values go by
// heads instead, and no rank makes any twice. In `hybrid` latents go round the ranks that have other rows. A rank
// makes keys and values of them, and neighbours exchange these by heads.
#include "heddle/model/text/latent_attention.h"

#include <cmath>

#include "heddle/model/text/attend.h"
#include "heddle/model/text/block_indexer.h"
#include "heddle/model/text/indexer.h"
#include "heddle/model/text/rotate.h"

namespace heddle::model {

using ir::ValueId;

namespace {

// Keys and values of other ranks' tokens are a part of their own.
OpPart keys_part(const Writer& w) {
  return w.cp() > 1 && w.spec().context != Context::ulysses ? OpPart::sequence_keys : OpPart::queries_keys;
}

ir::Attributes latent_attributes(const Writer& w, int64_t heads) {
  const auto width = w.config().latent_widths(w.layer());
  return {{"heads", heads}, {"nope", width.nope}, {"rope", width.rope}, {"value_dim", width.value}};
}

// Without a rotary key, which is then none, keys are those of each head alone.
std::vector<ValueId> assemble(Writer& w, ValueId kv, ValueId k_rope, int64_t heads) {
  const Writer::Part part(w, keys_part(w));
  if (k_rope == ir::none) {
    ir::Attributes attributes{{"first", w.config().latent_widths(w.layer()).nope}};
    if (heads > 1) attributes.set("runs", heads);
    return w.op("split", {kv}, {"k", "v"}, std::move(attributes));
  }
  return w.op("mla_assemble", {kv, k_rope}, {"k", "v"}, latent_attributes(w, heads));
}

HeadSizes sizes(const Writer& w, int64_t heads, ValueId sinks) {
  const auto width = w.config().latent_widths(w.layer());
  return {heads, heads, width.head(), width.value, sinks};
}

ValueId sinks_of(Writer& w, const std::string& prefix) {
  const ModelConfig& c = w.config();
  if (!c.has_sinks(w.layer())) return ir::none;
  return w.parameter(
      {.name = prefix + "sinks", .part = kAttention, .deviation = c.initializer_range, .cuts = {{0, ir::Axis::tp}}},
      w.wide(), {c.heads_of(w.layer())});
}

// The gate of attention's output, of the layer's rows.
ValueId gate_of(Writer& w, ValueId n_UH, const std::string& prefix) {
  const ModelConfig& c = w.config();
  if (c.attention_gate == AttentionGate::none) return ir::none;
  const Writer::Part part(w, OpPart::queries_keys);
  const int64_t heads = c.heads_of(w.layer());
  if (c.attention_gate == AttentionGate::head) return w.column_linear(n_UH, kAttention, prefix, "g_proj", heads);
  return w.column_linear(n_UH, kAttention, prefix, "gate_proj", heads * c.latent_widths(w.layer()).value);
}

// Norms a latent of queries, or of keys and values.
ValueId latent_norm(Writer& w, ValueId latent, const std::string& prefix, const char* weight, const char* name) {
  const ModelConfig& c = w.config();
  const int64_t width = w.columns(latent);
  const std::string made = c.scaled_latents ? fmt::format("{}_unscaled", name) : name;
  const ValueId normed = w.norm(latent, fmt::format("{}{}.weight", prefix, weight), made, c.latent_norm_eps, width);
  const double factor = std::sqrt(static_cast<double>(c.hidden_size) / static_cast<double>(width));
  return c.scaled_latents ? w.scaled(normed, factor, name) : normed;
}

// The latent of queries ahead of its norm and behind it, or the layer's rows.
struct LatentOfQueries {
  ValueId raw_T, normed_T;
};
LatentOfQueries latent_of_queries(Writer& w, ValueId n_TH, const std::string& prefix) {
  const int64_t rank = w.config().latent_widths(w.layer()).q_rank;
  if (rank == 0) return {n_TH, n_TH};
  const ValueId latent = w.linear(n_TH, kAttention, prefix, "q_a_proj", rank);
  return {latent, latent_norm(w, latent, prefix, "q_a_layernorm", "q_latent")};
}

// Keys are chosen one by one, or in blocks.
Index choose(Writer& w, ValueId n_TH, ValueId q_latent_T, const std::string& prefix) {
  if (!w.config().selects_blocks()) return index_keys(w, n_TH, q_latent_T, prefix);
  return index_blocks(w, {n_TH, ir::none, q_latent_T}, prefix);
}

// Queries, and the gate that the same projection makes of both latents: each head's query, then its gate.
struct Queries {
  ValueId q, gate = ir::none;
};
Queries queries(Writer& w, ValueId n_UH, const LatentOfQueries& latent, const std::string& prefix) {
  const ModelConfig& c = w.config();
  const auto width = c.latent_widths(w.layer());
  const int64_t heads = c.heads_of(w.layer());
  const auto project = [&](ValueId from, const char* name, int64_t columns) {
    const Writer::Part part(w, OpPart::queries_keys);
    return w.column_linear(from, kAttention, prefix, name, columns);
  };
  if (width.q_rank == 0) return {project(n_UH, "q_proj", heads * width.head())};
  if (!c.raw_latent_of_queries)
    return {project(w.gather(latent.normed_T, "q_latent"), "q_b_proj", heads * width.head())};
  const ValueId both_T = w.op("concat", {latent.normed_T, latent.raw_T}, {"q_latents"},
                              {{"first", width.q_rank}, {"second", width.q_rank}})[0];
  const ValueId joint = project(w.gather(both_T, "q_latents"), "q_b_proj", heads * (width.head() + width.value));
  const auto parts = w.op("split", {joint}, {"q_raw", "gate"}, {{"first", width.head()}, {"runs", heads / w.tp()}});
  return {parts[0], parts[1]};
}

}  // namespace

ValueId latent_attention(Writer& w, ValueId n_TH, const std::string& prefix) {
  const ModelConfig& c = w.config();
  const auto width = c.latent_widths(w.layer());
  const int64_t all_heads = c.heads_of(w.layer()), heads = all_heads / w.tp();
  const int64_t head_dim = width.head(), rope = width.rope;
  const ValueId sinks = sinks_of(w, prefix);
  const LatentOfQueries of_queries = latent_of_queries(w, n_TH, prefix);
  const ValueId q_latent_T = of_queries.normed_T;
  const bool gates_rows = c.attention_gate != AttentionGate::none && !c.raw_latent_of_queries;
  const ValueId n_UH = width.q_rank == 0 || gates_rows ? w.gather(n_TH, "n") : ir::none;
  const Queries made = queries(w, n_UH, of_queries, prefix);
  const ValueId q = made.q, gate = gates_rows ? gate_of(w, n_UH, prefix) : made.gate;
  const ValueId joint = w.linear(n_TH, kAttention, prefix, "kv_a_proj_with_mqa", width.kv_rank + rope);
  const auto parts = rope == 0
                         ? std::vector{joint, ir::none}
                         : w.op("split", {joint}, {"kv_latent_raw", "k_rope_raw"}, {{"first", width.kv_rank}});
  const ValueId normed = latent_norm(w, parts[0], prefix, "kv_a_layernorm", "kv_latent");
  const ValueId latent = w.gather(normed, "kv_latent");
  const ValueId k_rope_T = c.rotary_key_norm && rope > 0 ? w.norm(parts[1], prefix + "k_rope_only_layernorm.weight",
                                                                  "k_rope_normed", c.latent_norm_eps, rope)
                                                         : parts[1];
  const ValueId k_rope_raw = rope == 0 ? ir::none : w.gather(k_rope_T, "k_rope_raw");
  const ValueId w_kv_b = w.matrix(kAttention, prefix + "kv_b_proj.weight", all_heads * (width.nope + width.value),
                                  width.kv_rank, {}, {{0, ir::Axis::tp}});

  // The rotary key is of all heads and stays: the rotary part of a head's query takes its whole factor.
  const int64_t nope = width.nope;
  w.scales_with_heads(prefix, width.q_rank == 0 ? "q_proj" : "q_b_proj", {head_dim, nope, 0.5, 1});
  w.scales_with_heads(prefix, "kv_b_proj", {nope + width.value, nope, 0.5, 0});

  const auto linear_kv = [&](ValueId rows) {
    const Writer::Part part(w, keys_part(w));
    return w.op("linear", {rows, w_kv_b}, {"kv_b_proj"})[0];
  };
  const auto rotated_queries = [&] { return rotate(w, q, heads, head_dim, "q"); };
  const auto rotated_key = [&] { return rope == 0 ? ir::none : rotate(w, k_rope_raw, 1, rope, "k_rope"); };
  // A cache keeps latent and rotated key side by side: to the absorbed queries of `decode`, one key of one head.
  const auto keep = [&](ValueId k_rope) {
    const ValueId cache = w.cache("latent", width.kv_rank + rope);
    w.keep_rows(latent, cache);
    if (rope > 0) w.keep_rows(k_rope, cache, width.kv_rank);
    return cache;
  };
  ValueId o;
  if (w.decodes()) {
    choose(w, n_TH, q_latent_T, prefix);
    const ValueId q_rotated = rotated_queries(), cache = keep(rotated_key());
    const ir::Attributes shape = latent_attributes(w, heads);
    const ValueId q_latent =
        w.op("mla_absorb", {scaled_queries(w, q_rotated), w_kv_b}, {"q_latent_heads"}, shape)[0];
    const HeadSizes of_cache{heads, 1, width.kv_rank + rope, width.kv_rank, sinks};
    const ValueId o_latent = chooses_in(w) ? attend_chosen_of_cache(w, q_latent, cache, ir::none, of_cache)
                                           : attend_cached(w, q_latent, cache, ir::none, of_cache);
    o = w.op("mla_expand", {o_latent, w_kv_b}, {"o"}, shape)[0];
  } else if (c.selects_in(w.layer())) {
    // Attention reads the rotary table before the indexer does: mla_rope stands for the first that turns by it.
    const ValueId q_rotated = rotated_queries(), k_rope = rotated_key();
    const Index index = choose(w, n_TH, q_latent_T, prefix);
    if (w.caches()) keep(k_rope);
    const auto whole = [&](ValueId rows, const char* name) {
      return w.cp() > 1 && rows != ir::none ? gather_sequence(w, rows, name, w.cp()) : rows;
    };
    const auto k_v = assemble(w, linear_kv(whole(latent, "kv_latent")), whole(k_rope, "k_rope"), heads);
    o = attend_chosen(w, index, scaled_queries(w, q_rotated), k_v[0], k_v[1], sizes(w, heads, sinks));
  } else if (w.cp() == 1) {
    const ValueId kv = linear_kv(latent), q_rotated = rotated_queries(), k_rope = rotated_key();
    if (w.caches()) keep(k_rope);
    const auto k_v = assemble(w, kv, k_rope, heads);
    o = attend(w, scaled_queries(w, q_rotated), k_v[0], k_v[1], sizes(w, heads, sinks), "o").o;
  } else {
    const ValueId q_rotated = rotated_queries(), k_rope = rotated_key();
    const int64_t parts = w.head_ranks();
    const auto keys_values = [&](const std::vector<ValueId>& rows) {
      const ValueId shared = rope == 0 ? ir::none : rows[1];
      if (parts == 1) return assemble(w, linear_kv(rows[0]), shared, heads);
      const ValueId k_rope_all = rope == 0 ? ir::none : gather_sequence(w, shared, "k_rope", parts);
      const ValueId kv_heads = heads_to_sequence(w, linear_kv(rows[0]), "kv_heads", parts, keys_part(w));
      return assemble(w, kv_heads, k_rope_all, heads / parts);
    };
    std::vector<Travelling> travelling{{latent, "kv_latent"}};
    if (rope > 0) travelling.push_back({k_rope, "k_rope"});
    o = attend_across(w, scaled_queries(w, q_rotated), std::move(travelling), keys_values,
                      sizes(w, heads / parts, sinks));
  }
  if (gate != ir::none) o = w.op("sigmoid_gate", {o, gate}, {"o_gated"})[0];
  return w.row_linear(o, kAttention, prefix, "o_proj", all_heads * width.value, "o_proj");
}

}  // namespace heddle::model
