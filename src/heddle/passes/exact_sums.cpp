#include "heddle/passes/exact_sums.h"

#include "heddle/ops/ops.h"

namespace heddle::passes {

namespace {

using ir::Op;
using ir::Role;
using ir::ValueId;

ValueId exact_beside(ir::Listing& listing, ValueId accumulator) {
  ir::Value value = listing.value(accumulator);
  value.name = "exact." + value.name;
  value.dtype = Dtype::f64;
  return listing.add_value(std::move(value));
}

// The value that counts the rows of an expert product's operand, or none on one rank.
ValueId counts_of(const ir::Listing& listing, const Op& op) {
  return listing.value(op.in.front()).shape[0].rows_of;
}

}  // namespace

void exact_sums(ir::Listing& listing) {
  std::map<ValueId, ValueId> exact;
  for (const auto& [weight, uses] : std::map(listing.accumulators)) {
    for (const ValueId use : uses) exact[use] = exact_beside(listing, use);
  }
  std::vector<Op> ops;
  for (Op& op : listing.ops) {
    std::vector<ValueId> summed;
    for (const ValueId id : op.updates) {
      if (exact.contains(id)) summed.push_back(id);
    }
    if (summed.empty()) {
      ops.push_back(std::move(op));
      continue;
    }
    if (!op.def->exact.empty()) {  // its rows come from several ranks: each is a partial of its own
      op.def = &ops::find(op.def->exact);
      if (ir::place_of("counts", op.def->operands) >= 0) op.in.push_back(counts_of(listing, op));
      op.updates = {exact.at(summed[0])};
      const std::vector<ir::Value> made = op.def->infer(listing, op);  // beside the sum, in its type
      for (size_t i = 0; i < made.size(); ++i) listing.value(op.out[i]).dtype = made[i].dtype;
      ops.push_back(std::move(op));
      continue;
    }
    op.fresh = true;
    const ir::Phase phase = op.phase;
    const int layer = op.layer, chunk = op.chunk;
    ops.push_back(std::move(op));
    for (const ValueId id : summed) {
      Op add;
      add.def = &ops::find("add_exact");
      add.in = {id};
      add.updates = {exact.at(id)};
      add.phase = phase;
      add.layer = layer;
      add.chunk = chunk;
      ops.push_back(std::move(add));
    }
  }
  listing.ops = std::move(ops);
  for (auto& [weight, uses] : listing.accumulators) {
    for (ValueId& use : uses) use = exact.at(use);
  }
}

}  // namespace heddle::passes
