// Reverse-mode differentiation of a forward text.
//
// `differentiate` walks the forward ops of a listing backwards and lets each op definition write its own I and W
// ops. Gradients of a value with several readers are summed in the order in which the walk meets them (last reader
// first), by `add` ops in phase I. A frozen weight (Value::frozen) has no gradient, and neither has a value that
// depends on no weight that is trained: what only they would need is not written. Saved values need no bookkeeping:
// an I or W op that reads an activation keeps it alive, and liveness is a query.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "heddle/ir/listing.h"

namespace heddle::ir {

/// The writer of a gradient rule. Ops inherit the forward op's layer.
class GradientWriter {
 public:
  /// `wanted`, by value: whether it depends on a weight that is trained; empty where all do.
  GradientWriter(Listing& listing, const Op& forward, const std::vector<bool>& wanted)
      : listing_(listing), wanted_(wanted), layer_(forward.layer), chunk_(forward.chunk), group_(forward.group) {}

  const Listing& listing() const { return listing_; }
  /// True if the value wants a gradient: an activation that depends on what is trained, not metadata or a batch
  /// input.
  bool wants_gradient(ValueId id) const;

  /// Appends an op in phase I; outputs are named after `names`.
  std::vector<ValueId> input_gradient(const OpDef& def, std::vector<ValueId> in, std::vector<std::string> names,
                                      Attributes attributes = {});
  /// Appends an op in phase W that adds to a new accumulator of `weight` (fp32, the weight's shape; f64 where the
  /// weight is f64). Several weights of one op give several accumulators. Of frozen weights nothing: all are, or
  /// none.
  void weight_gradient(const OpDef& def, std::vector<ValueId> in, const std::vector<ValueId>& weights,
                       Attributes attributes = {});
  /// As above for one weight, where the op has another gradient beside it: outputs are named after `names`.
  std::vector<ValueId> weight_gradient(const OpDef& def, std::vector<ValueId> in, ValueId weight,
                                       std::vector<std::string> names, Attributes attributes);
  /// Appends an op in phase W that adds to the newest accumulator of `weight`, behind the op that has written it.
  void add_to_gradient(const OpDef& def, std::vector<ValueId> in, ValueId weight, Attributes attributes);
  /// Ops that communicate do so over this group from now on; before, over that of the forward op.
  void communicate_over(std::string group) { group_ = std::move(group); }
  /// "d" + the value's name: the usual name of a gradient.
  std::string d(ValueId id) const;

 private:
  Op op_of(const OpDef& def, std::vector<ValueId> in, Phase phase, Attributes attributes) const;
  ValueId new_accumulator(ValueId weight);
  std::vector<ValueId> append(Op op, const std::vector<std::string>& names);

  Listing& listing_;
  const std::vector<bool>& wanted_;
  int layer_, chunk_;
  std::string group_;
};

/// Appends the I and W ops of all F ops. `seeds`: gradients given from outside (the gradient received for the
/// listing's output), as (value, its gradient). A loss op needs no seed: its rule reads the loss scale itself.
/// `add` is the op that sums two gradients. Returns the gradient of each value in `wanted` (none where it has
/// none).
std::vector<ValueId> differentiate(Listing& listing, const OpDef& add,
                                   const std::vector<std::pair<ValueId, ValueId>>& seeds,
                                   const std::vector<ValueId>& wanted);

}  // namespace heddle::ir
