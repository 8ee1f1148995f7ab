#include "heddle/passes/pack_weights.h"

#include <set>
#include <string_view>

namespace heddle::passes {

void pack_weights(ir::Stage& stage, const std::function<int64_t(const ir::Value&)>& packed_bytes) {
  static const std::set<std::string_view> products{"linear",
                                                   "linear_dgrad",
                                                   "grouped_linear",
                                                   "grouped_linear_dgrad",
                                                   "linear_cross_entropy",
                                                   "linear_cross_entropy_dgrad",
                                                   "linear_cross_entropy_wgrad",
                                                   "linear_cross_entropy_train"};
  std::vector<bool> read(stage.values.size(), false), elsewhere(stage.values.size(), false);
  for (const ir::Op& op : stage.ops) {
    for (size_t i = 0; i < op.in.size(); ++i) {
      if (op.in[i] == ir::none) continue;
      const auto id = static_cast<size_t>(op.in[i]);
      read[id] = true;
      if (i != 1 || !products.contains(op.kind()) || op.attributes.integer_or("wide", 0) != 0) elsewhere[id] = true;
      // The router's product keeps its weight wide, in its backward too.
      if (op.kind() == "linear_dgrad" &&
          stage.values[static_cast<size_t>(op.in[0])].dtype != stage.values[id].dtype) {
        elsewhere[id] = true;
      }
    }
  }
  for (size_t v = 0; v < stage.values.size(); ++v) {
    ir::Value& value = stage.values[v];
    if (value.role != ir::Role::weight || !read[v] || elsewhere[v] || value.shape.size() < 2) continue;
    const int64_t bytes = packed_bytes(value);
    if (bytes == 0) continue;
    value.layout = ir::Layout::packed;
    value.packed_bytes = bytes;
  }
}

}  // namespace heddle::passes
