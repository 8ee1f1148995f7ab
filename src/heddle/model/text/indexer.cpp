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

Attributes attributes_of(const Writer& w) {
  const ModelConfig& c = w.config();
  Attributes attributes{{"heads", c.index_n_heads},
                        {"head_dim", c.index_head_dim},
                        {"sequence", w.spec().sequence_length},
                        {"scale", 1 / std::sqrt(static_cast<double>(c.index_n_heads * c.index_head_dim))}};
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

// All heads' shares of each key, of this rank's own rows; and the divergence of what the indexer says of them.
void learn(Writer& w, const Index& index, ValueId q, ValueId k, const HeadSizes& sizes) {
  const bool chosen = index.own != none;
  const ValueId share_U =
      w.op("attention_share", operands({q, k, chosen ? w.chosen() : none, chosen ? none : w.starts(), sizes.sinks}),
           {w.partial("share")}, indexed_attributes(w, sizes))[0];
  Attributes attributes = attributes_of(w);
  attributes.set("weight", w.config().index_loss_weight).set("scale_index", int64_t{kScaleZ});
  const ValueId loss = w.op("index_loss",
                            operands({index.q, index.k, index.w, w.scatter_sum(share_U, "share"), w.scales(),
                                      index.own, chosen ? none : w.starts()}),
                            {"index_loss"}, attributes)[0];
  w.keep(loss, {.kind = &kIndexLoss, .of = w.layer(), .scale = kScaleZ});
}

}  // namespace

Index index_keys(Writer& w, ValueId n_TH, ValueId q_latent_T, const std::string& prefix) {
  const ModelConfig& c = w.config();
  const bool learns = w.spec().purpose == ir::Purpose::train && c.index_stage != IndexStage::off;
  if (!c.has_indexer(w.layer()) || !(learns || chooses_keys(c))) return {};
  const std::string own = prefix + "indexer.";
  Index index;
  const Writer::Part part(w, OpPart::queries_keys);
  index.q = turned(w, project(w, q_latent_T, own, "wq_b", c.index_n_heads * c.index_head_dim), c.index_n_heads,
                   "index_q");
  ValueId k_T = turned(w, normed_index_key(w, project(w, n_TH, own, "wk", c.index_head_dim), own), 1, "index_k");
  index.w = project(w, n_TH, own, "weights_proj", c.index_n_heads, true);
  ValueId cache = none;
  if (w.caches()) {
    cache = w.cache("index_keys", c.index_head_dim);
    w.keep_rows(k_T, cache);
  }
  index.k = w.decodes() ? cache : w.gather(k_T, "index_k");
  if (w.cp() > 1) index.k = gather_sequence(w, index.k, "index_k", w.cp());
  if (!chooses_keys(c)) return index;
  Attributes attributes = attributes_of(w);
  attributes.set("top_k", std::min(c.index_topk, w.spec().sequence_length));
  index.own =
      w.op("choose_keys", operands({index.q, index.k, index.w, w.starts(), w.decodes() ? w.places() : none}),
           {w.tp() > 1 ? "chosen_here" : "chosen"}, attributes)[0];
  w.set_chosen(w.gather(index.own, "chosen"));
  return index;
}

ValueId attend_chosen(Writer& w, const Index& index, ValueId q, ValueId k, ValueId v, const HeadSizes& sizes) {
  ValueId o = none;
  if (chooses_in(w)) {
    HEDDLE_CHECK(w.chosen() != none, "layer {} takes the choice of none", w.layer());
    Attributes attributes = indexed_attributes(w, sizes);
    attributes.set("value_dim", sizes.value_dim);
    set_blocks(w, sizes.kv_heads, attributes);
    const ValueId starts = w.config().selects_blocks() ? w.starts() : none;
    const auto made = w.op("chosen_attention", operands({q, k, v, w.chosen(), none, sizes.sinks, starts}),
                           {"o", "lse"}, attributes);
    keep_max_logits(w, q, {k}, made[1], sizes, w.chosen());
    o = made[0];
  } else {
    o = attend(w, q, k, v, sizes, "o");
  }
  if (index.q != none && w.spec().purpose == ir::Purpose::train && w.config().index_stage != IndexStage::off)
    learn(w, index, q, k, sizes);
  return o;
}

ValueId attend_chosen_of_cache(Writer& w, ValueId q, ValueId keys, ValueId values, const HeadSizes& sizes) {
  Attributes attributes = indexed_attributes(w, sizes);
  attributes.set("value_dim", sizes.value_dim);
  set_blocks(w, sizes.kv_heads, attributes);
  return w.op("chosen_attention", operands({q, keys, values, w.chosen(), w.places(), sizes.sinks}), {"o", "lse"},
              attributes)[0];
}

}  // namespace heddle::model
