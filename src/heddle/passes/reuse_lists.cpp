#include "heddle/passes/reuse_lists.h"

namespace heddle::passes {

void reuse_lists(ir::Listing& listing) {
  std::vector<ir::ValueId> instead(listing.values.size());  // of each value
  for (size_t v = 0; v < instead.size(); ++v) instead[v] = static_cast<ir::ValueId>(v);
  const auto now = [&](ir::ValueId& id) {
    if (id != ir::none) id = instead[id];
  };
  std::vector<ir::Op> kept, counting;
  for (ir::Op& op : listing.ops) {
    for (ir::ValueId& id : op.in) now(id);
    if (op.def->moves == ir::Moves::counts || op.def->host_stall || op.def->room != nullptr) {
      const ir::Op* same = nullptr;
      for (const ir::Op& earlier : counting) {
        if (earlier.def == op.def && earlier.in == op.in && earlier.attributes == op.attributes) same = &earlier;
      }
      if (same != nullptr) {
        for (size_t i = 0; i < op.out.size(); ++i) instead[op.out[i]] = same->out[i];
        continue;
      }
      counting.push_back(op);
    }
    kept.push_back(std::move(op));
  }
  listing.ops = std::move(kept);
  for (ir::Value& value : listing.values) {
    for (ir::Dim& dim : value.shape) now(dim.rows_of);
  }
}

}  // namespace heddle::passes
