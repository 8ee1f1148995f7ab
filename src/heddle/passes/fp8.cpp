#include "heddle/passes/fp8.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "heddle/ir/uses.h"
#include "heddle/ops/fp8.h"
#include "heddle/ops/ops.h"

namespace heddle::passes {

namespace {

using ir::none;
using ir::Op;
using ir::OpDef;
using ir::Phase;
using ir::ValueId;

class Rounder {
 public:
  explicit Rounder(ir::Listing& listing) : listing_(listing), before_(listing), uses_(before_) {}

  void run() {
    choose_weights();
    for (const Op& op : before_.ops) {
      if (op.phase == Phase::F && reads_rows(op) && chosen(op) != nullptr)
        made_in_F_.insert({op.operand("x"), op.layer, op.chunk});
    }
    listing_.ops.clear();
    for (const Op& op : before_.ops) write(op);
  }

 private:
  struct Rounded {
    ValueId q = none, scales = none;
  };
  using Place = std::tuple<ValueId, Phase, int, int>;  // the rows, and the phase, layer and chunk that reads them

  // A linear map of a layer, by the type of what it makes; its bias does not matter.
  bool is_map(const Op& op) const {
    if (op.phase != Phase::F || !op.def->linear_map || op.layer < 0 || op.part == "head") return false;
    const ir::Value &x = listing_.value(op.operand("x")), &w = listing_.value(op.operand("w"));
    return ops::fp8_in_place_of(*op.def) != nullptr && w.role == ir::Role::weight && x.part_of == none &&
           x.dtype == w.dtype && listing_.value(op.out[0]).dtype == w.dtype &&
           op.attributes.integer_or("wide", 0) == 0;
  }

  // Every reader of such a weight is a map that is chosen or one's gradient, so that no product of it has other
  // numbers than the rest.
  void choose_weights() {
    for (const Op& op : listing_.ops) {
      if (!is_map(op)) continue;
      const ValueId w = op.operand("w");
      const auto readers = uses_.readers(w);
      const bool all = std::all_of(readers.begin(), readers.end(), [&](int reader) {
        const Op& other = uses_.op(reader);
        return other.phase == Phase::F ? is_map(other) || copies(other)
                                       : ops::fp8_in_place_of(*other.def) != nullptr || copies(other);
      });
      if (all) weights_.insert(w);
    }
    for (const auto& [weight, accumulators] : listing_.accumulators) {
      if (weights_.contains(weight)) sums_.insert(accumulators.begin(), accumulators.end());
    }
  }

  // Brings weights of experts to other ranks as they are.
  static bool copies(const Op& op) { return ir::communicates(*op.def); }

  // The definition that takes the op's place, or null where it stays.
  const OpDef* chosen(const Op& op) const {
    const OpDef* fp8 = ops::fp8_in_place_of(*op.def);
    if (fp8 == nullptr) return nullptr;
    const bool of_weight = ir::place_of("w", op.def->operands) >= 0 ? weights_.contains(op.operand("w"))
                                                                    : sums_.contains(op.updates[0]);
    return of_weight ? fp8 : nullptr;
  }
  static bool reads_rows(const Op& op) { return ir::place_of("x", op.def->operands) >= 0; }

  // True if the backward reads rows that F has rounded for nothing but these products; they are then kept as they
  // are rounded.
  bool keeps(ValueId x, int layer, int chunk) const {
    if (!made_in_F_.contains({x, layer, chunk})) return false;
    const auto readers = uses_.readers(x);
    return std::all_of(readers.begin(), readers.end(), [&](int reader) {
      const Op& op = uses_.op(reader);
      if (op.phase == Phase::F) return !op.def->drops;
      return reads_rows(op) && op.operand("x") == x && chosen(op) != nullptr;
    });
  }

  Rounded rounded(const Op& reader) {
    const ValueId x = reader.operand("x");
    const bool kept = reader.phase != Phase::F && keeps(x, reader.layer, reader.chunk);
    const Place place{x, kept ? Phase::F : reader.phase, reader.layer, reader.chunk};
    const auto found = rounded_.find(place);
    if (found != rounded_.end()) return found->second;
    Op op;
    op.def = &ops::find("round_rows");
    op.in = {x};
    op.phase = reader.phase;
    op.layer = reader.layer;
    op.chunk = reader.chunk;
    op.part = reader.part;
    op.again = reader.phase != Phase::F;
    const std::string& name = listing_.value(x).name;
    const std::vector<ValueId> out = listing_.append(std::move(op), {name + ".fp8", name + ".scales"});
    return rounded_[place] = {out[0], out[1]};
  }

  void write(Op op) {
    const OpDef* fp8 = chosen(op);
    if (fp8 == nullptr) {
      listing_.ops.push_back(std::move(op));
      return;
    }
    if (reads_rows(op)) {
      const Rounded of = rounded(op);
      const auto at = static_cast<size_t>(ir::place_of("x", op.def->operands));
      op.in[at] = of.q;
      op.in.insert(op.in.begin() + static_cast<std::ptrdiff_t>(at) + 1, of.scales);
    }
    ir::Attributes known;
    for (const auto& [name, item] : op.attributes.items()) {
      if (ir::place_of(name, fp8->attributes) >= 0) known.set(name, item);
    }
    op.attributes = std::move(known);
    op.def = fp8;
    listing_.ops.push_back(std::move(op));
  }

  ir::Listing& listing_;
  const ir::Listing before_;
  const ir::Uses uses_;  // of that
  std::set<ValueId> weights_, sums_;
  std::set<std::tuple<ValueId, int, int>> made_in_F_;
  std::map<Place, Rounded> rounded_;
};

}  // namespace

void fp8(ir::Listing& listing) { Rounder(listing).run(); }

}  // namespace heddle::passes
