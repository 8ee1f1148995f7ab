#include "heddle/model/text/indexer.h"

#include <algorithm>
#include <cmath>

#include "heddle/base/error.h"
#include "heddle/model/loss_scale.h"
#include "heddle/model/text/block_indexer.h"
#include "heddle/model/text/max_logits.h"

namespace heddle::model {

using ir::Attributes;
using ir::none;
using ir::ValueId;

namespace {

constexpr auto kIndexer = Parameter::Part::indexer;

// Operands of which the last may be absent.
std::vector<ValueId> operands(std::vector<ValueId> in) {
  while (in.back() == none) in.pop_back();
  return in;
}

// The first elements of each head, or the last, with the angles of this rank's own rows.
ValueId turned(Writer& w, ValueId x, int64_t heads, const std::string& name) {
  Attributes attributes{{"heads", heads},
                        {"head_dim", w.config().index_head_dim},
                        {"rope_dim", w.rotary_width()},
                        {"sequence", w.spec().sequence_length / (w.cp() * w.tp())},
                        {"interleaved", int64_t{w.config().indexer_rope_interleave}}};
  if (!w.config().indexer_rope_last) attributes.set("first", int64_t{0});
  if (w.decodes()) return w.op("rope_at", {x, w.own_rope_table(), w.places()}, {name}, attributes)[0];
  attributes.set("inverse", int64_t{0});
  return w.op("rope", {x, w.own_rope_table()}, {name}, attributes)[0];
}

ValueId project(Writer& w, ValueId x, const std::string& prefix, const std::string& name, int64_t n,
                bool wide = false) {
  const ValueId weight = w.matrix(kIndexer, prefix + name + ".weight", n, w.columns(x));
  Attributes attributes;
  if (wide) attributes.set("wide", int64_t{1});
  return w.op("detached_linear", {x, weight}, {"index_" + name}, attributes)[0];
}

}  // namespace

ValueId normed_index_key(Writer& w, ValueId x, const std::string& prefix) {
  const auto vector = [&](const char* name, Parameter::Start start) {
    return w.parameter({.name = prefix + "k_norm." + name, .part = kIndexer, .start = start}, w.wide(),
                       {w.config().index_head_dim});
  };
  return w.op("layer_norm", {x, vector("weight", Parameter::Start::ones), vector("bias", Parameter::Start::zeros)},
              {"index_k_normed", "index_k_mean", "index_k_rstd"}, {{"epsilon", w.config().indexer_norm_eps}})[0];
}

namespace {

bool learns(const Writer& w) {
  return w.spec().purpose == ir::Purpose::train && w.config().index_stage != IndexStage::off;
}
/// Each head of the indexer chooses for one key head.
bool has_lists(const ModelConfig& c) { return c.selects_blocks() && c.index_blocks == IndexBlocks::greatest; }

// Tokens of what an indexer scores: of a key, of an entry, or of a block with one key.
int64_t tokens_of_index_key(const Writer& w) {
  const ModelConfig& c = w.config();
  if (c.is_compressed()) return c.entry_tokens(w.layer());
  return c.selects_blocks() && !has_lists(c) ? c.index_block_size : 1;
}
int64_t count_of_index_keys(const Writer& w) { return w.spec().sequence_length / tokens_of_index_key(w); }

void set_tokens(const Writer& w, Attributes& attributes) {
  if (const int64_t tokens = tokens_of_index_key(w); tokens > 1 || w.config().is_compressed())
    attributes.set("rate", tokens).set("keys", count_of_index_keys(w));
}

// The attributes of an indexer whose heads score together.
Attributes attributes_of_index(const Writer& w) {
  const ModelConfig& c = w.config();
  Attributes attributes{{"heads", c.index_n_heads},
                        {"head_dim", c.index_head_dim},
                        {"sequence", w.spec().sequence_length},
                        {"scale", 1 / std::sqrt(static_cast<double>(c.index_n_heads * c.index_head_dim))}};
  set_tokens(w, attributes);
  if (w.cp() > 1) attributes.set("cp", w.cp());
  if (w.tp() > 1) attributes.set("tp", w.tp());
  return attributes;
}

Attributes indexed_attributes(const Writer& w, const HeadSizes& sizes) {
  Attributes attributes{
      {"heads", sizes.heads},
      {"kv_heads", sizes.kv_heads},
      {"head_dim", sizes.head_dim},
      {"sequence", w.spec().sequence_length},
      {"scale", w.config().is_latent() ? w.config().softmax_scale() : w.config().softmax_scale_of(sizes.head_dim)}};
  if (w.cp() > 1) attributes.set("cp", w.cp());
  return attributes;
}

}  // namespace

bool indexes_in(const Writer& w) {
  return w.config().has_indexer(w.layer()) && (learns(w) || chooses_keys(w.config()));
}

ValueId gather_whole(Writer& w, ValueId x_T, const std::string& name) {
  const ValueId x_U = w.gather(x_T, name);
  return w.cp() > 1 ? gather_sequence(w, x_U, name, w.cp()) : x_U;
}

ValueId cached_entries(Writer& w, ValueId k) {
  if (!w.caches()) return k;
  const int64_t count = count_of_index_keys(w);
  const ValueId cache = w.cache("index_keys", w.config().index_head_dim, count);
  w.op("cache_rows", {k, w.places()}, {},
       {{"sequence", w.spec().sequence_length},
        {"rate", tokens_of_index_key(w)},
        {"first", int64_t{0}},
        {"keys", count},
        {"offset", int64_t{0}}},
       "", {cache});
  return w.decodes() ? cache : k;
}

void choose_best(Writer& w, Index& index) {
  const ModelConfig& c = w.config();
  if (!chooses_keys(c)) return;
  Attributes attributes = attributes_of_index(w);
  const int64_t wanted = c.selects_blocks() ? c.index_topk / c.index_block_size : c.index_topk;
  attributes.set("top_k", std::min(wanted, count_of_index_keys(w)));
  index.own =
      w.op("choose_keys", operands({index.q, index.k, index.w, w.starts(), w.decodes() ? w.places() : none}),
           {w.tp() > 1 ? "chosen_here" : "chosen"}, attributes)[0];
  w.set_chosen(w.gather(index.own, "chosen"));
}

void learn(Writer& w, const Index& index, ValueId q, ValueId k, ValueId lse, const HeadSizes& sizes) {
  const ModelConfig& c = w.config();
  if (index.q == none || !learns(w)) return;
  const bool chosen = index.own != none, blocks = c.selects_blocks(), lists = has_lists(c);
  Attributes of_share = indexed_attributes(w, sizes), of_loss = attributes_of_index(w);
  double weight = c.index_loss_weight;
  if (c.is_compressed()) set_tokens(w, of_share);
  if (blocks && !lists) of_share.set("block", c.index_block_size).set("of_blocks", int64_t{1});
  if (lists) {  // the mean of those of all key heads
    const int64_t heads = c.index_n_heads / w.tp();
    weight /= static_cast<double>(c.index_n_heads);
    of_share.set("lists", heads);
    of_loss = {{"heads", heads},
               {"head_dim", c.index_head_dim},
               {"sequence", w.spec().sequence_length},
               {"scale", 1 / std::sqrt(static_cast<double>(c.index_head_dim))},
               {"lists", heads}};
    if (w.cp() > 1) of_loss.set("cp", w.cp());
    if (chosen) of_share.set("block", c.index_block_size), of_loss.set("block", c.index_block_size);
  }
  of_loss.set("weight", weight).set("scale_index", int64_t{kScaleZ});
  ValueId share = w.op("attention_share",
                       operands({q, k, lse, chosen ? w.chosen() : none, chosen && !blocks ? none : w.starts()}),
                       {lists ? "share" : w.partial("share")}, of_share)[0];
  if (!lists) share = w.scatter_sum(share, "share");  // of all heads
  const ValueId loss = w.op(
      "index_loss",
      operands({index.q, index.k, index.w, share, w.scales(), index.own, chosen && !lists ? none : w.starts()}),
      {"index_loss"}, of_loss)[0];
  w.keep(loss, {.kind = &kIndexLoss, .of = w.layer(), .scale = kScaleZ});
}

Index index_keys(Writer& w, ValueId n_TH, ValueId q_latent_T, const std::string& prefix) {
  const ModelConfig& c = w.config();
  if (!indexes_in(w)) return {};
  const std::string own = prefix + "indexer.";
  Index index;
  const Writer::Part part(w, OpPart::queries_keys);
  index.q = turned(w, project(w, q_latent_T, own, "wq_b", c.index_n_heads * c.index_head_dim), c.index_n_heads,
                   "index_q");
  const ValueId k_T =
      turned(w, normed_index_key(w, project(w, n_TH, own, "wk", c.index_head_dim), own), 1, "index_k");
  index.w = project(w, n_TH, own, "weights_proj", c.index_n_heads, true);
  if (w.caches()) {
    index.k = w.cache("index_keys", c.index_head_dim);
    w.keep_rows(k_T, index.k);
  }
  if (!w.decodes()) index.k = gather_whole(w, k_T, "index_k");
  choose_best(w, index);
  return index;
}

ValueId attend_chosen(Writer& w, const Index& index, ValueId q, ValueId k, ValueId v, const HeadSizes& sizes) {
  Attended made;
  if (chooses_in(w)) {
    HEDDLE_CHECK(w.chosen() != none, "layer {} takes the choice of none", w.layer());
    Attributes attributes = indexed_attributes(w, sizes);
    attributes.set("value_dim", sizes.value_dim);
    set_blocks(w, sizes.kv_heads, attributes);
    const ValueId starts = w.config().selects_blocks() ? w.starts() : none;
    const auto o_lse = w.op("chosen_attention", operands({q, k, v, w.chosen(), none, sizes.sinks, starts}),
                            {"o", "lse"}, attributes);
    keep_max_logits(w, q, {k}, o_lse[1], sizes, w.chosen());
    made = {o_lse[0], o_lse[1]};
  } else {
    made = attend(w, q, k, v, sizes, "o");
  }
  learn(w, index, q, k, made.lse, sizes);
  return made.o;
}

ValueId attend_chosen_of_cache(Writer& w, ValueId q, ValueId keys, ValueId values, const HeadSizes& sizes) {
  Attributes attributes = indexed_attributes(w, sizes);
  attributes.set("value_dim", sizes.value_dim);
  set_blocks(w, sizes.kv_heads, attributes);
  return w.op("chosen_attention", operands({q, keys, values, w.chosen(), w.places(), sizes.sinks}), {"o", "lse"},
              attributes)[0];
}

}  // namespace heddle::model
