#include "heddle/simulate/memory_kind.h"

#include <algorithm>

#include "heddle/passes/op_groups.h"

namespace heddle::simulate {

namespace {

using ir::none;
using ir::Role;
using ir::ValueId;

MemoryKind of_role(Role role) {
  switch (role) {
    case Role::weight: return MemoryKind::weights;
    case Role::accumulator: return MemoryKind::weight_gradients;
    case Role::optimizer: return MemoryKind::optimizer;
    case Role::statistic:
    case Role::cache: return MemoryKind::statistics;
    case Role::gradient: return MemoryKind::gradients;
    case Role::input:
    case Role::activation:
    case Role::metadata: break;
  }
  return MemoryKind::outside;
}

class Kinds {
 public:
  explicit Kinds(const ir::Listing& listing)
      : listing_(listing), kinds_(listing.values.size(), MemoryKind::outside), made_in_(listing.values.size(), -1) {
    for (size_t v = 0; v < kinds_.size(); ++v) kinds_[v] = of_role(listing.values[v].role);
  }

  std::vector<MemoryKind> all() {
    for (const ir::Op& op : listing_.ops) {
      for (const ValueId id : op.out) made(op, listing_.base(id));
      // A value that persists and comes from the host is a slot that data passes through.
      if (op.def->moves == ir::Moves::from_host)
        for (const ValueId id : op.updates) set(id, MemoryKind::in_flight);
    }
    for (size_t v = 0; v < kinds_.size(); ++v) kinds_[v] = kinds_[base(v)];
    return kinds_;
  }

 private:
  ValueId base(size_t v) const { return listing_.base(static_cast<ValueId>(v)); }
  void set(ValueId id, MemoryKind kind) { kinds_[listing_.base(id)] = kind; }

  void made(const ir::Op& op, ValueId id) {
    const auto v = static_cast<size_t>(id);
    made_in_[v] = op.layer;
    if (op.def->moves == ir::Moves::from_host) {
      kinds_[v] = MemoryKind::in_flight;
    } else if (op.def->moves == ir::Moves::to_host || op.def->reserves) {
      kinds_[v] = kinds_[listing_.base(op.in[0])];
    } else if (op.def->timed) {
      kinds_[v] = MemoryKind::weights;  // gathered
    } else if (listing_.value(id).role == Role::activation || listing_.value(id).role == Role::metadata) {
      kinds_[v] = of_activation(op);
    }
  }

  MemoryKind of_activation(const ir::Op& op) const {
    if (op.layer < 0 || ir::once_a_step(op.phase)) return MemoryKind::outside;
    if (op.def->work == ir::Work::norm || op.def->moves == ir::Moves::from_neighbour) return MemoryKind::between;
    return feeds_forward(op) ? MemoryKind::feed_forward : MemoryKind::attention;
  }

  // True for ops of the feed-forward part. A reader of such a value in the same layer belongs to it, too: the sum
  // of a token's rows.
  bool feeds_forward(const ir::Op& op) const {
    static const std::vector<passes::OpGroup> groups = passes::parse_groups("mlp, moe", "tell apart");
    return passes::holds(groups, op, op.layer) || ir::is_exchange(op.def->moves) ||
           std::any_of(op.in.begin(), op.in.end(), [&](ValueId in) {
             if (in == none) return false;
             const auto v = static_cast<size_t>(listing_.base(in));
             return made_in_[v] == op.layer && kinds_[v] == MemoryKind::feed_forward;
           });
  }

  const ir::Listing& listing_;
  std::vector<MemoryKind> kinds_;
  std::vector<int> made_in_;  // layer, by value
};

}  // namespace

std::vector<MemoryKind> memory_kinds(const ir::Listing& listing) { return Kinds(listing).all(); }

}  // namespace heddle::simulate
