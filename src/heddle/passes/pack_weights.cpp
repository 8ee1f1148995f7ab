#include "heddle/passes/pack_weights.h"

#include <algorithm>

#include "heddle/ir/uses.h"

namespace heddle::passes {

namespace {

// True if an op can read the weight packed. Its rows are of the weight's type, and its sums need not stay wide (the
// router's product keeps its weight wide, in its backward too).
bool reads_packed(const ir::Listing& listing, const ir::Op& op, ir::ValueId weight) {
  return !op.def->packable.empty() && op.operand(op.def->packable) == weight &&
         std::count(op.in.begin(), op.in.end(), weight) == 1 && op.attributes.integer_or("wide", 0) == 0 &&
         listing.value(op.in.front()).dtype == listing.value(weight).dtype;
}

// The results of an op that moves packed matrices lie as they do.
void move_packed(ir::Listing& listing, ir::Op& op, int64_t bytes_each) {
  if (ir::place_of("bytes", op.def->attributes) < 0) return;
  op.attributes.set("bytes", bytes_each);
  const std::vector<ir::Value> made = op.def->infer(listing, op);
  for (size_t i = 0; i < made.size(); ++i) {
    ir::Value& value = listing.value(op.out[i]);
    value.layout = made[i].layout;
    value.packed_bytes = made[i].packed_bytes;
  }
}

}  // namespace

void pack_weights(ir::Listing& listing, const std::function<int64_t(const ir::Value&)>& packed_bytes) {
  const ir::Uses uses(listing);
  for (ir::ValueId id = 0; id < std::ssize(listing.values); ++id) {
    ir::Value& value = listing.value(id);
    const auto readers = uses.readers(id);
    // A frozen weight has no master to be packed from.
    if (value.role != ir::Role::weight || value.frozen || value.shape.size() < 2 || readers.empty() ||
        !std::all_of(readers.begin(), readers.end(),
                     [&](int op) { return reads_packed(listing, uses.op(op), id); })) {
      continue;
    }
    const int64_t bytes = packed_bytes(value);
    if (bytes == 0) continue;
    value.layout = ir::Layout::packed;
    value.packed_bytes = bytes;
    const int64_t matrices = value.shape.size() == 3 ? value.shape[0].count : 1;
    for (const int reader : readers) move_packed(listing, listing.ops[reader], bytes / matrices);
  }
}

}  // namespace heddle::passes
