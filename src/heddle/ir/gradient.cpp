#include "heddle/ir/gradient.h"

#include <algorithm>

namespace heddle::ir {

namespace {

// By value: whether it depends on a weight that is trained, or comes from a rank where it may. Empty where no
// weight is frozen: then all do.
std::vector<bool> depending_on_trained(const Listing& listing) {
  std::vector<bool> depends;
  if (std::none_of(listing.values.begin(), listing.values.end(), [](const Value& v) { return v.frozen; }))
    return depends;
  depends.resize(listing.values.size(), false);
  const auto is_source = [&](ValueId id) {
    if (id == none) return false;
    const Value& value = listing.value(id);
    return value.role == Role::weight ? !value.frozen : bool{depends[id]};
  };
  for (const Op& op : listing.ops) {
    const bool any = op.def->moves == Moves::from_neighbour || std::any_of(op.in.begin(), op.in.end(), is_source) ||
                     std::any_of(op.mentions.begin(), op.mentions.end(), is_source);
    for (const ValueId out : op.out) depends[out] = any;
  }
  return depends;
}

}  // namespace

bool GradientWriter::wants_gradient(ValueId id) const {
  return id != none && listing_.value(id).role == Role::activation && (wanted_.empty() || wanted_[id]);
}

std::string GradientWriter::d(ValueId id) const { return "d" + listing_.value(id).name; }

Op GradientWriter::op_of(const OpDef& def, std::vector<ValueId> in, Phase phase, Attributes attributes) const {
  Op op;
  op.def = &def;
  op.in = std::move(in);
  op.phase = phase;
  if (communicates(def)) op.group = group_;
  op.layer = layer_;
  op.chunk = chunk_;
  op.attributes = std::move(attributes);
  return op;
}

std::vector<ValueId> GradientWriter::append(Op op, const std::vector<std::string>& names) {
  const std::vector<ValueId> out = listing_.append(std::move(op), names);
  for (const ValueId id : out) {
    if (listing_.value(id).role == Role::activation) listing_.value(id).role = Role::gradient;
  }
  return out;
}

std::vector<ValueId> GradientWriter::input_gradient(const OpDef& def, std::vector<ValueId> in,
                                                    std::vector<std::string> names, Attributes attributes) {
  return append(op_of(def, std::move(in), Phase::I, std::move(attributes)), names);
}

ValueId GradientWriter::new_accumulator(ValueId weight) {
  std::vector<ValueId>& uses = listing_.accumulators[weight];
  Value accumulator = listing_.value(weight);
  accumulator.name =
      uses.empty() ? "grad." + accumulator.name : fmt::format("grad.{}.use{}", accumulator.name, uses.size() + 1);
  accumulator.dtype = accumulator.dtype == Dtype::f64 ? Dtype::f64 : Dtype::f32;
  accumulator.role = Role::accumulator;
  accumulator.layout = Layout::rows;
  accumulator.packed_bytes = 0;
  const ValueId id = listing_.add_value(std::move(accumulator));
  uses.push_back(id);
  return id;
}

void GradientWriter::weight_gradient(const OpDef& def, std::vector<ValueId> in, const std::vector<ValueId>& weights,
                                     Attributes attributes) {
  const auto frozen =
      std::count_if(weights.begin(), weights.end(), [&](ValueId weight) { return listing_.value(weight).frozen; });
  HEDDLE_CHECK(frozen == 0 || frozen == std::ssize(weights), "'{}' is of weights of which some are frozen",
               def.kind);
  if (frozen > 0) return;
  Op op = op_of(def, std::move(in), Phase::W, std::move(attributes));
  for (const ValueId weight : weights) op.updates.push_back(new_accumulator(weight));
  append(std::move(op), {});
}

std::vector<ValueId> GradientWriter::weight_gradient(const OpDef& def, std::vector<ValueId> in, ValueId weight,
                                                     std::vector<std::string> names, Attributes attributes) {
  HEDDLE_CHECK(!listing_.value(weight).frozen, "'{}' is of a frozen weight", def.kind);
  Op op = op_of(def, std::move(in), Phase::W, std::move(attributes));
  op.updates.push_back(new_accumulator(weight));
  return append(std::move(op), names);
}

void GradientWriter::add_to_gradient(const OpDef& def, std::vector<ValueId> in, ValueId weight,
                                     Attributes attributes) {
  Op op = op_of(def, std::move(in), Phase::W, std::move(attributes));
  op.updates.push_back(listing_.accumulators.at(weight).back());
  append(std::move(op), {});
}

std::vector<ValueId> differentiate(Listing& listing, const OpDef& add,
                                   const std::vector<std::pair<ValueId, ValueId>>& seeds,
                                   const std::vector<ValueId>& wanted) {
  std::vector<ValueId> gradient_of(listing.values.size(), none);
  const auto sum_in = [&](ValueId of, ValueId gradient, const Op* forward) {
    ValueId& sum = gradient_of[of];
    if (sum == none) {
      sum = gradient;
      return;
    }
    Op op;
    op.def = &add;
    op.in = {sum, gradient};
    op.phase = Phase::I;
    if (forward != nullptr) {
      op.layer = forward->layer;
      op.chunk = forward->chunk;
    }
    sum = listing.append(std::move(op), {"d" + listing.value(of).name})[0];
    listing.value(sum).role = Role::gradient;
  };
  for (const auto& [value, gradient] : seeds) sum_in(value, gradient, nullptr);
  const std::vector<bool> wanted_by_value = depending_on_trained(listing);

  for (size_t i = listing.ops.size(); i-- > 0;) {
    const Op forward = listing.ops[i];  // a copy: the rules append to the list
    if (forward.phase != Phase::F || forward.def->differentiate == nullptr) continue;
    const auto is_part = [&](ValueId id) { return id != none && listing.value(id).part_of != none; };
    HEDDLE_CHECK(!forward.condition && std::none_of(forward.in.begin(), forward.in.end(), is_part) &&
                     std::none_of(forward.out.begin(), forward.out.end(), is_part),
                 "'{}' is differentiated before passes cut values or set conditions, not after", forward.kind());
    std::vector<ValueId> d_out;
    bool any = forward.def->is_loss;
    for (const ValueId out : forward.out) {
      d_out.push_back(gradient_of[out]);
      any = any || d_out.back() != none;
    }
    if (!any) continue;
    GradientWriter writer(listing, forward, wanted_by_value);
    std::vector<ValueId> inputs = forward.in;
    inputs.insert(inputs.end(), forward.mentions.begin(), forward.mentions.end());
    // Nothing asks for this op's gradients; but the other end of a message is on a rank that may.
    const auto asks = [&](ValueId id) {
      return id != none &&
             (writer.wants_gradient(id) || (listing.value(id).role == Role::weight && !listing.value(id).frozen));
    };
    if (!wanted_by_value.empty() && !is_message(forward.def->moves) &&
        std::none_of(inputs.begin(), inputs.end(), asks)) {
      continue;
    }
    const std::vector<ValueId> d_in = forward.def->differentiate(writer, forward, d_out);
    HEDDLE_CHECK(d_in.size() == inputs.size(), "the gradient rule of '{}' returned {} gradients for {} inputs",
                 forward.kind(), d_in.size(), inputs.size());
    for (size_t k = 0; k < d_in.size(); ++k) {
      if (d_in[k] != none && writer.wants_gradient(inputs[k])) sum_in(inputs[k], d_in[k], &forward);
    }
  }
  std::vector<ValueId> result;
  for (const ValueId id : wanted) result.push_back(gradient_of[id]);
  return result;
}

}  // namespace heddle::ir
