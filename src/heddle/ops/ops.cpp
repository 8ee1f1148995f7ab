#include "heddle/ops/ops.h"

#include <map>

#include "heddle/base/error.h"
#include "heddle/ops/fp8.h"

namespace heddle::ops {

const std::vector<const ir::OpDef*>& all() {
  static const std::vector<const ir::OpDef*> definitions = [] {
    std::vector<const ir::OpDef*> joined;
    for (const auto family : {load_ops,
                              embedding_ops,
                              linear_ops,
                              grouped_linear_ops,
                              fp8_ops,
                              norm_ops,
                              dropout_ops,
                              hyper_connection_ops,
                              gated_stream_ops,
                              shape_ops,
                              rope_ops,
                              attention_ops,
                              cache_ops,
                              selection_ops,
                              compression_ops,
                              recurrence_ops,
                              convolution_ops,
                              mlp_ops,
                              router_ops,
                              balance_ops,
                              auxiliary_loss_ops,
                              permute_ops,
                              exchange_ops,
                              copies_ops,
                              homes_ops,
                              capacity_ops,
                              pipeline_ops,
                              collective_ops,
                              collective_product_ops,
                              copy_ops,
                              cross_entropy_ops,
                              preference_ops,
                              optimizer_ops,
                              muon_ops,
                              qk_clip_ops,
                              exact_ops}) {
      for (const ir::OpDef* def : family()) joined.push_back(def);
    }
    return joined;
  }();
  return definitions;
}

const ir::OpDef& find(std::string_view kind) {
  static const std::map<std::string_view, const ir::OpDef*> by_kind = [] {
    std::map<std::string_view, const ir::OpDef*> map;
    for (const ir::OpDef* def : all()) {
      HEDDLE_CHECK(map.emplace(def->kind, def).second, "two ops are named '{}'", def->kind);
    }
    return map;
  }();
  const auto at = by_kind.find(kind);
  HEDDLE_CHECK(at != by_kind.end(), "no op is named '{}'", kind);
  return *at->second;
}

}  // namespace heddle::ops
