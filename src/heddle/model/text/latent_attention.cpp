// Latent and rotary key go between ranks of cp (576 numbers a token in DeepSeek-V3, keys and values 40960 ÷ tp).
// Each rank makes the keys and values of the whole sequence from them itself. In `ulysses` keys and values go by
// heads instead, and no rank makes any twice. In `hybrid` latents go round the ranks that have other rows. A rank
// makes keys and values of them, and neighbours exchange these by heads.
#include "heddle/model/text/latent_attention.h"

#include <cmath>

#include "heddle/model/text/attend.h"
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
  const ModelConfig& c = w.config();
  return {
      {"heads", heads}, {"nope", c.qk_nope_head_dim}, {"rope", c.qk_rope_head_dim}, {"value_dim", c.v_head_dim}};
}

std::vector<ValueId> assemble(Writer& w, ValueId kv, ValueId k_rope, int64_t heads) {
  const Writer::Part part(w, keys_part(w));
  return w.op("mla_assemble", {kv, k_rope}, {"k", "v"}, latent_attributes(w, heads));
}

HeadSizes sizes(const Writer& w, int64_t heads) {
  return {heads, heads, w.config().qk_head_dim(), w.config().v_head_dim};
}

// Norms a latent of queries, or of keys and values.
ValueId latent_norm(Writer& w, ValueId latent, const std::string& prefix, const char* weight, const char* name) {
  const ModelConfig& c = w.config();
  const int64_t width = w.columns(latent);
  const std::string made = c.scaled_latents ? fmt::format("{}_unscaled", name) : name;
  const ValueId normed =
      w.norm(latent, fmt::format("{}{}.weight", prefix, weight), made, kLatentNormEpsilon, width);
  const double factor = std::sqrt(static_cast<double>(c.hidden_size) / static_cast<double>(width));
  return c.scaled_latents ? w.scaled(normed, factor, name) : normed;
}

// From the latent of queries, or from the layer's rows.
ValueId latent_of_queries(Writer& w, ValueId n_TH, const std::string& prefix) {
  const int64_t rank = w.config().q_lora_rank;
  if (rank == 0) return n_TH;
  const ValueId latent = w.linear(n_TH, kAttention, prefix, "q_a_proj", rank);
  return latent_norm(w, latent, prefix, "q_a_layernorm", "q_latent");
}

ValueId queries(Writer& w, ValueId q_latent_T, const std::string& prefix) {
  const ModelConfig& c = w.config();
  const auto project = [&](ValueId from, const char* name) {
    const Writer::Part part(w, OpPart::queries_keys);
    return w.column_linear(from, kAttention, prefix, name, c.num_attention_heads * c.qk_head_dim());
  };
  if (c.q_lora_rank == 0) return project(w.gather(q_latent_T, "n"), "q_proj");
  return project(w.gather(q_latent_T, "q_latent"), "q_b_proj");
}

}  // namespace

ValueId latent_attention(Writer& w, ValueId n_TH, const std::string& prefix) {
  const ModelConfig& c = w.config();
  const int64_t all_heads = c.num_attention_heads, heads = all_heads / w.tp();
  const int64_t head_dim = c.qk_head_dim(), rope = c.qk_rope_head_dim;
  const ValueId q_latent_T = latent_of_queries(w, n_TH, prefix);
  const ValueId q = queries(w, q_latent_T, prefix);
  const ValueId joint = w.linear(n_TH, kAttention, prefix, "kv_a_proj_with_mqa", c.kv_lora_rank + rope);
  const auto parts = w.op("split", {joint}, {"kv_latent_raw", "k_rope_raw"}, {{"first", c.kv_lora_rank}});
  const ValueId normed = latent_norm(w, parts[0], prefix, "kv_a_layernorm", "kv_latent");
  const ValueId latent = w.gather(normed, "kv_latent");
  const ValueId k_rope_raw = w.gather(parts[1], "k_rope_raw");
  const ValueId w_kv_b =
      w.matrix(kAttention, prefix + "kv_b_proj.weight", all_heads * (c.qk_nope_head_dim + c.v_head_dim),
               c.kv_lora_rank, {}, {{0, ir::Axis::tp}});

  // The rotary key is of all heads and stays: the rotary part of a head's query takes its whole factor.
  const int64_t nope = c.qk_nope_head_dim;
  w.scales_with_heads(prefix, c.q_lora_rank == 0 ? "q_proj" : "q_b_proj", {head_dim, nope, 0.5, 1});
  w.scales_with_heads(prefix, "kv_b_proj", {nope + c.v_head_dim, nope, 0.5, 0});

  const auto linear_kv = [&](ValueId rows) {
    const Writer::Part part(w, keys_part(w));
    return w.op("linear", {rows, w_kv_b}, {"kv_b_proj"})[0];
  };
  const auto rotated_queries = [&] { return rotate(w, q, heads, head_dim, "q"); };
  const auto rotated_key = [&] { return rotate(w, k_rope_raw, 1, rope, "k_rope"); };
  // A cache keeps latent and rotated key side by side: to the absorbed queries of `decode`, one key of one head.
  const auto keep = [&](ValueId k_rope) {
    const ValueId cache = w.cache("latent", c.kv_lora_rank + rope);
    w.keep_rows(latent, cache);
    w.keep_rows(k_rope, cache, c.kv_lora_rank);
    return cache;
  };
  ValueId o;
  if (w.decodes()) {
    index_keys(w, n_TH, q_latent_T, prefix);
    const ValueId q_rotated = rotated_queries(), cache = keep(rotated_key());
    const ir::Attributes shape = latent_attributes(w, heads);
    const ValueId q_latent = w.op("mla_absorb", {q_rotated, w_kv_b}, {"q_latent_heads"}, shape)[0];
    const HeadSizes of_cache{heads, 1, c.kv_lora_rank + rope, c.kv_lora_rank};
    const ValueId o_latent = chooses_keys(c) ? attend_chosen_of_cache(w, q_latent, cache, of_cache)
                                             : attend_cached(w, q_latent, cache, ir::none, of_cache);
    o = w.op("mla_expand", {o_latent, w_kv_b}, {"o"}, shape)[0];
  } else if (c.selects()) {
    // Attention reads the rotary table before the indexer does: mla_rope stands for the first that turns by it.
    const ValueId q_rotated = rotated_queries(), k_rope = rotated_key();
    const Index index = index_keys(w, n_TH, q_latent_T, prefix);
    if (w.caches()) keep(k_rope);
    const auto whole = [&](ValueId rows, const char* name) {
      return w.cp() > 1 ? gather_sequence(w, rows, name, w.cp()) : rows;
    };
    const auto k_v = assemble(w, linear_kv(whole(latent, "kv_latent")), whole(k_rope, "k_rope"), heads);
    o = attend_chosen(w, index, q_rotated, k_v[0], k_v[1], sizes(w, heads));
  } else if (w.cp() == 1) {
    const ValueId kv = linear_kv(latent), q_rotated = rotated_queries(), k_rope = rotated_key();
    if (w.caches()) keep(k_rope);
    const auto k_v = assemble(w, kv, k_rope, heads);
    o = attend(w, q_rotated, k_v[0], k_v[1], sizes(w, heads), "o");
  } else {
    const ValueId q_rotated = rotated_queries(), k_rope = rotated_key();
    const int64_t parts = w.head_ranks();
    const auto keys_values = [&](const std::vector<ValueId>& rows) {
      if (parts == 1) return assemble(w, linear_kv(rows[0]), rows[1], heads);
      const ValueId k_rope_all = gather_sequence(w, rows[1], "k_rope", parts);
      const ValueId kv_heads = heads_to_sequence(w, linear_kv(rows[0]), "kv_heads", parts, keys_part(w));
      return assemble(w, kv_heads, k_rope_all, heads / parts);
    };
    o = attend_across(w, q_rotated, {{latent, "kv_latent"}, {k_rope, "k_rope"}}, keys_values,
                      sizes(w, heads / parts));
  }
  return w.row_linear(o, kAttention, prefix, "o_proj", all_heads * c.v_head_dim, "o_proj");
}

}  // namespace heddle::model
