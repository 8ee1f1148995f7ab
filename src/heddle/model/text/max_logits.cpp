#include "heddle/model/text/max_logits.h"

namespace heddle::model {

using ir::ValueId;

void keep_max_logits(Writer& w, ValueId q, const std::vector<ValueId>& keys, ValueId lse, const HeadSizes& sizes,
                     ValueId chosen) {
  if (w.spec().qk_clip <= 0 || w.spec().purpose != ir::Purpose::train) return;
  const ModelConfig& c = w.config();
  ir::Attributes attributes{{"heads", sizes.heads},       {"kv_heads", sizes.kv_heads},
                            {"head_dim", sizes.head_dim}, {"sequence", w.spec().sequence_length},
                            {"causal", int64_t{1}},       {"scale", c.softmax_scale_of(sizes.head_dim)},
                            {"above", w.spec().qk_clip}};
  if (w.head_ranks() > 1) attributes.set("head_parts", w.head_ranks());
  if (w.row_ranks() > 1) attributes.set("cp", w.row_ranks());
  if (w.row_ranks() > 1 && w.spec().context != Context::gather) attributes.set("ring", int64_t{1});
  if (w.inner_ring() > 1) attributes.set("inner", w.inner_ring());
  const int64_t window = chosen == ir::none ? c.window_of(w.layer()) : 0;
  if (window > 0) attributes.set("window", window);
  std::vector<ValueId> in{q, lse, chosen == ir::none ? w.seen_from() : ir::none, chosen};
  in.insert(in.end(), keys.begin(), keys.end());
  const ValueId most = w.statistic({.kind = &kMaxLogits, .of = w.layer()}, {1, sizes.heads * w.head_ranks() + 1});
  w.op("max_logits", in, {}, attributes, "", {most});
}

}  // namespace heddle::model
