#include "heddle/passes/exact_sums.h"

#include <algorithm>
#include <map>
#include <set>

#include "heddle/ops/ops.h"

namespace heddle::passes {

namespace {

using ir::Op;
using ir::OpDef;
using ir::Role;
using ir::ValueId;

ValueId exact_beside(ir::Listing& listing, ValueId accumulator) {
  ir::Value value = listing.value(accumulator);
  value.name = "exact." + value.name;
  value.dtype = Dtype::f64;
  return listing.add_value(std::move(value));
}

// The value that counts the rows of each expert product by source. It is that which its operand has as many rows
// as, or what stands beside its offsets where all sizes are known; none on one rank.
class SourceCounts {
 public:
  explicit SourceCounts(const ir::Listing& listing) {
    for (const Op& op : listing.ops) {
      if (ir::place_of("counts", op.def->results) < 0) continue;
      for (const ValueId made : op.out) beside_[made] = op.result("counts");
    }
  }
  ValueId of(const ir::Listing& listing, const Op& op) const {
    const ir::Dim& rows = listing.value(op.in.front()).shape[0];
    if (rows.rows_of != ir::none) return rows.rows_of;
    const auto at = beside_.find(op.operand("offsets"));
    return at == beside_.end() ? ir::none : at->second;
  }

 private:
  std::map<ValueId, ValueId> beside_;
};

}  // namespace

void exact_sums(ir::Listing& listing) {
  std::map<ValueId, ValueId> exact;
  for (const auto& [weight, uses] : std::map(listing.accumulators)) {
    for (const ValueId use : uses) exact[use] = exact_beside(listing, use);
  }
  const SourceCounts counts(listing);
  std::set<ValueId> wide;  // made beside sums
  const auto retype = [&](const Op& op) {
    const std::vector<ir::Value> made = op.def->infer(listing, op);
    for (size_t i = 0; i < made.size(); ++i) listing.value(op.out[i]).dtype = made[i].dtype;
    wide.insert(op.out.begin(), op.out.end());
  };
  std::vector<Op> ops;
  for (Op& op : listing.ops) {
    std::vector<ValueId> summed;
    for (const ValueId id : op.updates) {
      if (exact.contains(id)) summed.push_back(id);
    }
    if (summed.empty()) {
      // A sum of what two rounds of rows made beside their sums is of its type.
      if (!op.in.empty() && std::ranges::all_of(op.in, [&](ValueId id) { return wide.contains(id); })) retype(op);
      ops.push_back(std::move(op));
      continue;
    }
    if (!op.def->exact.empty()) {  // its rows come from several ranks: each is a partial of its own
      const OpDef& exactly = ops::find(op.def->exact);
      if (ir::place_of("counts", exactly.operands) >= 0) op.in.push_back(counts.of(listing, op));
      op.def = &exactly;
      op.updates = {exact.at(summed[0])};
      retype(op);  // beside the sum, in its type
      ops.push_back(std::move(op));
      continue;
    }
    op.fresh = true;
    const ir::Phase phase = op.phase;
    const int layer = op.layer, chunk = op.chunk;
    const bool beside = op.beside;
    ops.push_back(std::move(op));
    for (const ValueId id : summed) {
      Op add;
      add.def = &ops::find("add_exact");
      add.in = {id};
      add.updates = {exact.at(id)};
      add.phase = phase;
      add.layer = layer;
      add.chunk = chunk;
      add.beside = beside;
      ops.push_back(std::move(add));
    }
  }
  listing.ops = std::move(ops);
  for (auto& [weight, uses] : listing.accumulators) {
    for (ValueId& use : uses) use = exact.at(use);
  }
}

}  // namespace heddle::passes
