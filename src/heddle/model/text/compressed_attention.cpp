// Queries come from a latent, with a norm a head that has no gain. The last elements of a head turn with its
// position. The key is the value too, so what attention makes is turned back by the query's position.
//
// A layer W attends to a window. The others attend to a list of keys: the window's and, behind them, those entries
// of many tokens that a query sees (ops/compression.cpp). In layers S an indexer chooses among them. It has entries
// and queries of its own width, and learns what this attention gives to each entry (ops/selection.cpp).
//
// Heads and groups of outputs are cut among tp. Keys and what makes entries go between ranks of tp and cp before
// they are joined: each rank makes all entries of its sequences.
#include "heddle/model/text/compressed_attention.h"

#include <algorithm>
#include <cmath>

#include "heddle/model/text/attend.h"
#include "heddle/model/text/indexer.h"
#include "heddle/model/text/rotate.h"

namespace heddle::model {

using ir::Attributes;
using ir::none;
using ir::ValueId;

namespace {

int64_t entries_of_sequence(const Writer& w) {
  return w.spec().sequence_length / w.config().entry_tokens(w.layer());
}
Attributes windows(const Writer& w) {
  return {{"sequence", w.spec().sequence_length}, {"rate", w.config().entry_tokens(w.layer())}};
}

std::vector<ValueId> without_absent(std::vector<ValueId> in) {
  while (!in.empty() && in.back() == none) in.pop_back();
  return in;
}

// The last elements of rows of entries, by the position of their first token.
ValueId turned_entries(Writer& w, ValueId e, int64_t width, const std::string& name) {
  Attributes attributes{{"heads", int64_t{1}},
                        {"head_dim", width},
                        {"rope_dim", w.rotary_width()},
                        {"sequence", w.decodes() ? w.spec().sequence_length : entries_of_sequence(w)},
                        {"interleaved", int64_t{w.config().rope_interleave}}};
  if (w.decodes()) {
    attributes.set("rate", w.config().entry_tokens(w.layer()));
    return w.op("rope_at", {e, w.rope_table(), w.places()}, {name}, attributes)[0];
  }
  attributes.set("inverse", int64_t{0});
  return w.op("rope", {e, w.rope_table_of_entries(entries_of_sequence(w), w.config().entry_tokens(w.layer()))},
              {name}, attributes)[0];
}

// Entries of `width` elements of whole sequences, or those that the rows of `decode` complete.
ValueId entries(Writer& w, ValueId n_TH, Parameter::Part of, const std::string& prefix, int64_t width,
                const std::string& name) {
  const ModelConfig& c = w.config();
  const int64_t series = c.compression_of(w.layer()) == Compression::sparse ? 2 : 1, columns = series * width;
  const auto projected = [&](const char* what) {
    const ValueId weight = w.matrix(of, prefix + what + "_proj.weight", columns, c.hidden_size);
    const char* kind = of == kAttention ? "linear" : "detached_linear";
    return w.op(kind, {n_TH, weight}, {fmt::format("{}_{}", name, what)})[0];
  };
  const ValueId own_rows = projected("kv"), own_gates = projected("gate");
  const ValueId bias = w.parameter({.name = prefix + "position_bias",
                                    .part = of == kAttention ? Parameter::Part::convolution : of,
                                    .start = Parameter::Start::zeros},
                                   w.wide(), {c.entry_tokens(w.layer()), columns});
  ValueId rows = own_rows, gates = own_gates;
  if (w.caches()) {
    const ValueId kept_rows = w.cache(name + "_rows", columns), kept_gates = w.cache(name + "_gates", columns);
    w.keep_rows(own_rows, kept_rows);
    w.keep_rows(own_gates, kept_gates);
    if (w.decodes()) rows = kept_rows, gates = kept_gates;
  }
  if (!w.decodes()) {
    rows = gather_whole(w, rows, name + "_kv");
    gates = gather_whole(w, gates, name + "_gate");
  }
  Attributes attributes = windows(w);
  attributes.set("series", series);
  const ValueId made =
      w.op("compress_rows", without_absent({rows, gates, bias, w.starts(), w.decodes() ? w.places() : none}),
           {name + "_raw"}, attributes)[0];
  const ValueId gain = w.parameter({.name = prefix + "kv_norm.weight",
                                    .part = of == kAttention ? Parameter::Part::norm : of,
                                    .start = Parameter::Start::ones},
                                   w.wide(), {width});
  const ValueId normed =
      w.op("rms_norm", {made, gain}, {name + "_normed", name + "_rstd"}, {{"epsilon", c.rms_norm_eps}})[0];
  return turned_entries(w, normed, width, name);
}

// Keeps entries of whole sequences, or completed ones, behind `offset` rows of each sequence of a cache.
void keep_entries(Writer& w, ValueId e, ValueId cache, int64_t keys, int64_t offset) {
  Attributes attributes = windows(w);
  attributes.set("first", int64_t{0}).set("keys", keys).set("offset", offset);
  w.op("cache_rows", {e, w.places()}, {}, attributes, "", {cache});
}

// The indexer of entries of whole sequences. It chooses among them.
Index index_entries(Writer& w, ValueId n_TH, ValueId q_latent_T, const std::string& prefix) {
  const ModelConfig& c = w.config();
  if (!indexes_in(w)) return {};
  constexpr auto kOf = Parameter::Part::indexer;
  const int64_t heads = c.index_n_heads, width = c.index_head_dim;
  const ValueId w_q = w.matrix(kOf, prefix + "q_b_proj.weight", heads * width, c.q_lora_rank);
  const ValueId w_w = w.matrix(kOf, prefix + "scorer.weights_proj.weight", heads, c.hidden_size);
  Attributes rope{{"heads", heads},
                  {"head_dim", width},
                  {"rope_dim", w.rotary_width()},
                  {"sequence", w.spec().sequence_length / (w.cp() * w.tp())},
                  {"interleaved", int64_t{c.rope_interleave}}};
  const ValueId q_raw = w.op("detached_linear", {q_latent_T, w_q}, {"index_q_raw"})[0];
  Index index;
  index.q = w.decodes()
                ? w.op("rope_at", {q_raw, w.own_rope_table(), w.places()}, {"index_q"}, rope)[0]
                : w.op("rope", {q_raw, w.own_rope_table()}, {"index_q"}, rope.set("inverse", int64_t{0}))[0];
  index.w = w.op("detached_linear", {n_TH, w_w}, {"index_weights"}, {{"wide", int64_t{1}}})[0];
  index.k = cached_entries(w, entries(w, n_TH, kOf, prefix, width, "index_entry"));
  choose_best(w, index);
  return index;
}

// Attention to the window and to entries. kv: of this rank's part of the sequences.
ValueId attend_compressed(Writer& w, ValueId n_TH, ValueId q_latent_T, ValueId q, ValueId kv,
                          const HeadSizes& sizes, const std::string& prefix) {
  const ModelConfig& c = w.config();
  const int64_t length = w.spec().sequence_length, keys = length + entries_of_sequence(w);
  const std::string own = prefix + "compressor.";
  ValueId e = none, joined = none;
  Index index;
  {
    const Writer::Part part(w, OpPart::queries_keys);
    e = entries(w, n_TH, kAttention, own, sizes.head_dim, "entry");
    index = index_entries(w, n_TH, q_latent_T, own + "indexer.");
  }
  if (w.caches()) {
    joined = w.cache("keys", sizes.head_dim, keys);
    w.op("cache_rows", {kv, w.places()}, {}, {{"first", int64_t{0}}, {"sequence", length}, {"keys", keys}}, "",
         {joined});
    keep_entries(w, e, joined, keys, length);
  }
  Attributes list = windows(w);
  list.set("rows", w.value(q).shape[0].count).set("window", c.sliding_window);
  if (w.cp() > 1) list.set("cp", w.cp());
  const ValueId seen =
      w.op("list_keys",
           without_absent({index.own == none ? none : w.chosen(), w.starts(), w.decodes() ? w.places() : none}),
           {"seen"}, list)[0];
  if (!w.decodes()) {
    const ValueId whole = w.cp() > 1 ? gather_sequence(w, kv, "kv", w.cp()) : kv;
    joined = w.op("join_entries", {whole, e}, {"keys"}, windows(w))[0];
  }
  Attributes attributes{{"heads", sizes.heads},
                        {"kv_heads", int64_t{1}},
                        {"head_dim", sizes.head_dim},
                        {"value_dim", sizes.head_dim},
                        {"sequence", length},
                        {"scale", c.softmax_scale_of(sizes.head_dim)},
                        {"keys", keys},
                        {"window", c.sliding_window}};
  if (w.cp() > 1) attributes.set("cp", w.cp());
  const auto made = w.op(
      "chosen_attention",
      without_absent({q, joined, w.decodes() ? none : joined, seen, w.decodes() ? w.places() : none, sizes.sinks}),
      {"o", "lse"}, attributes);
  learn(w, index, q, e, made[1], sizes);
  return made[0];
}

ValueId attend_window(Writer& w, ValueId q, ValueId kv, const HeadSizes& sizes) {
  const auto is_both = [](const std::vector<ValueId>& rows) { return std::vector{rows[0], rows[0]}; };
  const ValueId cache = w.caches() ? w.cache("k", sizes.head_dim) : none;
  if (w.caches()) w.keep_rows(kv, cache);
  if (w.decodes()) return attend_cached(w, q, cache, none, sizes);
  return w.cp() == 1 ? attend(w, q, kv, kv, sizes, "o").o : attend_across(w, q, {{kv, "kv"}}, is_both, sizes);
}

}  // namespace

ValueId compressed_attention(Writer& w, ValueId n_TH, const std::string& prefix) {
  const ModelConfig& c = w.config();
  const int64_t all_heads = c.num_attention_heads, width = c.head_dim;
  HeadSizes sizes{all_heads / w.tp(), 1, width, width};
  if (c.attention_sinks) {
    sizes.sinks = w.parameter({.name = prefix + "sinks",
                               .part = kAttention,
                               .deviation = c.initializer_range,
                               .cuts = {{0, ir::Axis::tp}}},
                              w.wide(), {all_heads});
  }
  const ValueId q_raw_T = w.linear(n_TH, kAttention, prefix, "q_a_proj", c.q_lora_rank);
  const ValueId q_latent_T = w.norm(q_raw_T, prefix + "q_a_norm.weight", "q_latent", c.rms_norm_eps, c.q_lora_rank);
  const ValueId kv_raw_T = w.linear(n_TH, kAttention, prefix, "kv_proj", width);
  const ValueId kv_T = w.norm(kv_raw_T, prefix + "kv_norm.weight", "kv_normed", c.rms_norm_eps, width);
  ValueId q = none, kv = none;
  {
    const Writer::Part part(w, OpPart::queries_keys);
    const ValueId q_heads =
        w.column_linear(w.gather(q_latent_T, "q_latent"), kAttention, prefix, "q_b_proj", all_heads * width);
    q = rotate(w, w.unit_norm(q_heads, "q_normed", width), sizes.heads, width, "q");
    kv = rotate(w, w.gather(kv_T, "kv_normed"), 1, width, "kv");
  }
  const bool compresses = c.entry_tokens(w.layer()) > 0;
  ValueId o =
      compresses ? attend_compressed(w, n_TH, q_latent_T, q, kv, sizes, prefix) : attend_window(w, q, kv, sizes);
  o = rotate(w, o, sizes.heads, width, "o_turned", true);
  const int64_t made = c.o_groups * c.o_lora_rank;
  const ValueId w_groups = w.matrix(kAttention, prefix + "o_a_proj.weight", made, all_heads * width / c.o_groups,
                                    {}, {{0, ir::Axis::tp}});
  const ValueId y = w.op("block_linear", {o, w_groups}, {"o_a_proj"}, {{"groups", c.o_groups / w.tp()}})[0];
  return w.row_linear(y, kAttention, prefix, "o_b_proj", made, "o_b_proj");
}

}  // namespace heddle::model
