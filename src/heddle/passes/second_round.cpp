#include "heddle/passes/second_round.h"

#include <algorithm>
#include <map>

#include "heddle/ops/ops.h"

namespace heddle::passes {

namespace {

using ir::Listing;
using ir::none;
using ir::Op;
using ir::ValueId;

class SecondRound {
 public:
  explicit SecondRound(Listing& listing) : listing_(listing) {}

  void run() {
    std::vector<Op> ops = std::move(listing_.ops);
    listing_.ops.clear();
    for (Op& op : ops) {
      for (ValueId& id : op.in) {
        if (const auto at = sums_.find(id); at != sums_.end()) id = at->second;
      }
      const bool counts = op.def->room != nullptr && op.attributes.has("rest");
      const bool goes_home = op.def->moves == ir::Moves::from_experts && op.attributes.has("rest");
      if (goes_home) take_both(op);
      const bool again = !goes_home && (counts || is_of_rows(op));
      listing_.ops.push_back(std::move(op));
      if (again) repeat(Op(listing_.ops.back()), counts);
    }
  }

 private:
  bool has_rows(ValueId id) const {
    if (id == none) return false;
    const ir::Shape& shape = listing_.value(id).shape;
    return std::any_of(shape.begin(), shape.end(),
                       [&](const ir::Dim& dim) { return !dim.is_static() && rest_of_.contains(dim.rows_of); });
  }
  bool is_of_rows(const Op& op) const {
    const auto any = [&](const std::vector<ValueId>& ids) {
      return std::any_of(ids.begin(), ids.end(), [&](ValueId id) { return has_rows(id); });
    };
    return any(op.in) || any(op.out) || any(op.updates);
  }

  // The second round's value in the place of a first one's; others as they are.
  ValueId rest_of(ValueId id) const {
    const auto at = rest_of_.find(id);
    return at == rest_of_.end() ? id : at->second;
  }
  ValueId add_rest_of(ValueId id) {
    ir::Value value = listing_.value(id);
    value.name += ".rest";
    for (ir::Dim& dim : value.shape) {
      if (!dim.is_static()) dim.rows_of = rest_of(dim.rows_of);
    }
    return listing_.add_value(std::move(value));
  }

  // Writes the same op for the rows of the second round behind it. Where it also makes what has no rows, later ops
  // read the sum of both.
  void repeat(Op op, bool counts) {
    const std::vector<ValueId> first = op.out;
    for (ValueId& id : op.in) id = rest_of(id);
    std::vector<size_t> sums;
    for (size_t i = 0; i < op.out.size(); ++i) {
      ValueId& id = op.out[i];
      if (id == none) continue;
      if (!counts && !has_rows(id)) sums.push_back(i);
      id = add_rest_of(id);
      rest_of_[first[i]] = id;
    }
    if (counts || op.def->moves == ir::Moves::to_experts) op.attributes.set("round", int64_t{1});
    op.beside = op.beside || !op.updates.empty();
    const Op repeated = op;
    listing_.ops.push_back(std::move(op));
    for (const size_t i : sums) {
      Op add{.def = &ops::find("add"),
             .in = {first[i], repeated.out[i]},
             .phase = repeated.phase,
             .layer = repeated.layer,
             .chunk = repeated.chunk,
             .part = repeated.part};
      const ir::Role role = listing_.value(first[i]).role;
      const ValueId sum = listing_.append(std::move(add), {listing_.value(first[i]).name + ".both"})[0];
      listing_.value(sum).role = role;
      sums_[first[i]] = sum;
      rest_of_.erase(first[i]);
    }
  }

  // Operands `rest_…` are the second round's of those of the same name.
  void take_both(Op& op) const {
    constexpr std::string_view kRest = "rest_";
    const std::vector<std::string_view> names = ir::names_in(op.def->operands);
    op.in.resize(names.size(), none);
    for (size_t i = 0; i < names.size(); ++i) {
      std::string_view name = names[i];
      if (!name.starts_with(kRest)) continue;
      name.remove_prefix(kRest.size());
      if (name.ends_with('?')) name.remove_suffix(1);
      op.in[i] = rest_of_.at(op.operand(name));
    }
  }

  Listing& listing_;
  std::map<ValueId, ValueId> rest_of_, sums_;
};

}  // namespace

void second_round(Listing& listing) { SecondRound(listing).run(); }

}  // namespace heddle::passes
