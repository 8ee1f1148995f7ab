#include "heddle/model/text/block_indexer.h"

#include <algorithm>
#include <cmath>

#include "heddle/base/error.h"
#include "heddle/model/text/attend.h"
#include "heddle/model/text/indexer.h"

namespace heddle::model {

using ir::Attributes;
using ir::none;
using ir::ValueId;

namespace {

constexpr auto kBlockIndexer = Parameter::Part::indexer;

std::vector<ValueId> present(std::vector<ValueId> in) {
  while (in.back() == none) in.pop_back();
  return in;
}

int64_t whole_blocks(const Writer& w) { return w.spec().sequence_length / w.config().index_block_size; }

ValueId product(Writer& w, ValueId x, const std::string& weight, const std::string& name, int64_t n,
                const std::vector<Cut>& cuts = {}, bool wide = false) {
  Attributes attributes;
  if (wide) attributes.set("wide", int64_t{1});
  return w.op("detached_linear", {x, w.matrix(kBlockIndexer, weight, n, w.columns(x), {}, cuts)}, {name},
              attributes)[0];
}

// Norms each head, with a gain as the model's norms have it.
ValueId normed_index(Writer& w, ValueId x, const std::string& weight, const std::string& name) {
  const bool centered = w.config().zero_centered_norms;
  const ValueId gain = w.parameter(
      {.name = weight, .part = kBlockIndexer, .start = centered ? Parameter::Start::zeros : Parameter::Start::ones},
      w.wide(), {w.config().index_head_dim});
  Attributes attributes{{"epsilon", w.config().rms_norm_eps}};
  if (centered) attributes.set("offset", 1.0);
  return w.op("rms_norm", {x, gain}, {name, name + "_rstd"}, attributes)[0];
}

// The first elements of each head, by a table of so many places.
ValueId turned_index(Writer& w, ValueId x, ValueId table, int64_t heads, int64_t places, const std::string& name) {
  Attributes attributes{{"heads", heads},
                        {"head_dim", w.config().index_head_dim},
                        {"rope_dim", w.rotary_width()},
                        {"sequence", places},
                        {"interleaved", int64_t{w.config().rope_interleave}},
                        {"first", int64_t{0}}};
  if (w.decodes()) return w.op("rope_at", {x, table, w.places()}, {name}, attributes)[0];
  attributes.set("inverse", int64_t{0});
  return w.op("rope", {x, table}, {name}, attributes)[0];
}
ValueId turned_own_rows(Writer& w, ValueId x, int64_t heads, const std::string& name) {
  return turned_index(w, x, w.own_rope_table(), heads, w.spec().sequence_length / (w.cp() * w.tp()), name);
}

Index index_by_greatest(Writer& w, const IndexedRows& rows, const std::string& own) {
  const ModelConfig& c = w.config();
  const int64_t width = c.index_head_dim, heads = c.index_n_heads / w.tp(), block = c.index_block_size;
  Index index;
  const ValueId q_raw =
      product(w, rows.n_UH, own + "q_proj.weight", "index_q_proj", c.index_n_heads * width, {{0, ir::Axis::tp}});
  index.q = turned_index(w, normed_index(w, q_raw, own + "q_norm.weight", "index_q_normed"), w.rope_table(), heads,
                         w.spec().sequence_length / w.cp(), "index_q");
  const ValueId k_raw = product(w, rows.n_TH, own + "k_proj.weight", "index_k_proj", width);
  const ValueId k_T =
      turned_own_rows(w, normed_index(w, k_raw, own + "k_norm.weight", "index_k_normed"), 1, "index_k");
  if (w.caches()) {
    index.k = w.cache("index_keys", width);
    w.keep_rows(k_T, index.k);
  }
  if (!w.decodes()) index.k = gather_whole(w, k_T, "index_k");
  if (!chooses_in(w)) return index;
  const int64_t blocks = (w.spec().sequence_length + block - 1) / block;
  Attributes attributes{{"heads", heads},
                        {"head_dim", width},
                        {"sequence", w.spec().sequence_length},
                        {"top_k", std::min(c.index_topk / block, blocks)},
                        {"block", block},
                        {"local", std::min(c.index_local_blocks, blocks)}};
  if (w.cp() > 1) attributes.set("cp", w.cp());
  index.own = w.op("choose_blocks", present({index.q, index.k, w.starts(), w.decodes() ? w.places() : none}),
                   {"chosen"}, attributes)[0];
  w.set_chosen(index.own);
  return index;
}

// The keys of all whole blocks, or of those that the rows of `decode` complete. Gates and bias may be absent.
ValueId keys_of_blocks(Writer& w, ValueId own_rows, ValueId own_gates, ValueId bias) {
  ValueId rows = own_rows, gates = own_gates;
  const int64_t width = w.config().index_head_dim;
  const auto kept = [&](ValueId x_T, const std::string& name) {
    const ValueId cache = w.cache(name, width);
    w.keep_rows(x_T, cache);
    return w.decodes() ? cache : x_T;
  };
  if (w.caches()) {
    rows = kept(rows, "index_rows");
    if (gates != none) gates = kept(gates, "index_gates");
  }
  if (!w.decodes()) {
    rows = gather_whole(w, rows, "index_k_rows");
    if (gates != none) gates = gather_whole(w, gates, "index_k_gates");
  }
  return w.op("compress_rows", present({rows, gates, bias, w.starts(), w.decodes() ? w.places() : none}),
              {"index_blocks"}, {{"sequence", w.spec().sequence_length}, {"rate", w.config().index_block_size}})[0];
}

Index index_by_mean(Writer& w, const IndexedRows& rows, const std::string& own) {
  const ModelConfig& c = w.config();
  const int64_t width = c.index_head_dim, heads = c.index_n_heads;
  const ValueId joint = product(w, rows.n_TH, own + "index_qk_proj.weight", "index_qk_proj", (heads + 1) * width);
  const auto parts = w.op("split", {joint}, {"index_q_proj", "index_k_proj"}, {{"first", heads * width}});
  const ValueId q =
      turned_own_rows(w, normed_index(w, parts[0], own + "q_layernorm.weight", "index_q_normed"), heads, "index_q");
  const ValueId mean = keys_of_blocks(w, parts[1], none, none);
  const ValueId normed = normed_index(w, mean, own + "k_layernorm.weight", "index_k_normed");
  const int64_t blocks = whole_blocks(w), rate = c.index_block_size;
  ValueId k = none;
  if (w.decodes()) {
    k = w.op("rope_at", {normed, w.rope_table(), w.places()}, {"index_k"},
             {{"heads", int64_t{1}},
              {"head_dim", width},
              {"rope_dim", w.rotary_width()},
              {"sequence", w.spec().sequence_length},
              {"interleaved", int64_t{c.rope_interleave}},
              {"first", int64_t{0}},
              {"rate", rate}})[0];
  } else {
    k = turned_index(w, normed, w.rope_table_of_entries(blocks, rate), 1, blocks, "index_k");
  }
  Index index{q, cached_entries(w, k)};
  choose_best(w, index);
  return index;
}

Index index_by_gated_mean(Writer& w, const IndexedRows& rows, const std::string& own) {
  const ModelConfig& c = w.config();
  const int64_t width = c.index_head_dim, heads = c.index_n_heads;
  const ValueId q = product(w, rows.q_latent_T, own + "wq_b.weight", "index_wq_b", heads * width);
  const ValueId k_T = normed_index_key(w, product(w, rows.n_TH, own + "wk.weight", "index_wk", width), own);
  const ValueId gates = product(w, rows.n_TH, own + "index_kpool_compress_gate", "index_gate", width);
  const ValueId bias = w.parameter(
      {.name = own + "index_kpool_compress_ape", .part = kBlockIndexer, .start = Parameter::Start::zeros}, w.wide(),
      {c.index_block_size, width});
  const ValueId weights = product(w, rows.n_TH, own + "weights_proj.weight", "index_weights_proj", heads, {}, true);
  Index index{q, cached_entries(w, keys_of_blocks(w, k_T, gates, bias)), weights};
  choose_best(w, index);
  return index;
}

}  // namespace

bool chooses_in(const Writer& w) { return w.config().selects_in(w.layer()) && chooses_keys(w.config()); }

Index index_blocks(Writer& w, const IndexedRows& rows, const std::string& prefix) {
  if (!indexes_in(w)) return {};
  const std::string own = prefix + "indexer.";
  const Writer::Part part(w, OpPart::queries_keys);
  switch (w.config().index_blocks) {
    case IndexBlocks::none: break;
    case IndexBlocks::greatest: return index_by_greatest(w, rows, own);
    case IndexBlocks::mean: return index_by_mean(w, rows, own);
    case IndexBlocks::gated: return index_by_gated_mean(w, rows, own);
  }
  return {};
}

void set_blocks(const Writer& w, int64_t kv_heads, Attributes& attributes) {
  const ModelConfig& c = w.config();
  if (!c.selects_blocks()) return;
  attributes.set("block", c.index_block_size);
  if (c.index_blocks != IndexBlocks::greatest) attributes.set("tail", int64_t{1});
  if (c.index_blocks == IndexBlocks::greatest && kv_heads > 1) attributes.set("lists", kv_heads);
}

}  // namespace heddle::model
