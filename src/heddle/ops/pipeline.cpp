// Sending a stage's output to its neighbour on a mesh axis, and receiving. Each is the other's backward.
#include "heddle/ops/ops.h"
#include "heddle/ops/rule.h"

namespace heddle::ops {

namespace {

extern const OpDef receive;

Cost message_cost(const Listing& listing, const Op& op, const RowCounts& rows) {
  return Cost{.message_bytes = static_cast<double>(listing.bytes(op.in.empty() ? op.out[0] : op.in[0], rows))};
}

// Attributes of the message that answers `op`: back where it came from, with the gradient of the same state of the
// same edge.
Attributes answer_to(const Op& op) {
  Attributes attributes{{"step", op.attributes.integer("step")}};
  for (const char* name : {"edge", "state"}) {
    if (op.attributes.has(name)) attributes.set(name, op.attributes.integer(name));
  }
  return attributes;
}

Attributes shape_of(const Listing& listing, ValueId id, Attributes attributes) {
  const Value& v = listing.value(id);
  return attributes.set("dtype", std::string(heddle::name_of(v.dtype)))
      .set("rows", v.shape[0].count)
      .set("columns", v.shape[1].count);
}

// clang-format off
const OpDef send{
    .kind = "send",
    .operands = "x", .attributes = "step edge? state?",
    .stream = StreamKind::comm,
    .is_loss = true,  // its gradient arrives from the neighbour
    .moves = ir::Moves::to_neighbour,
    .infer = [](const Listing&, const Op&) { return std::vector<Value>{}; },
    .differentiate = [](GradientWriter& writer, const Op& op, const std::vector<ValueId>&) {
      return writer.input_gradient(receive, {}, {writer.d(op.in[0])},
                                   shape_of(writer.listing(), op.in[0], answer_to(op)));
    },
    .cost = message_cost,
};

const OpDef receive{
    .kind = "receive",
    .results = "x", .attributes = "step edge? state? dtype rows columns",
    .stream = StreamKind::comm,
    .moves = ir::Moves::from_neighbour,
    .infer = [](const Listing&, const Op& op) {
      const Attributes& a = op.attributes;
      return std::vector{output(dtype_named(a.word("dtype")), {fixed(a.integer("rows")), fixed(a.integer("columns"))})};
    },
    .differentiate = [](GradientWriter& writer, const Op& op, const std::vector<ValueId>& d_out) {
      writer.input_gradient(send, {d_out[0]}, {}, answer_to(op));
      return std::vector<ValueId>{};
    },
    .cost = message_cost,
};
// clang-format on

}  // namespace

std::vector<const OpDef*> pipeline_ops() { return {&send, &receive}; }

}  // namespace heddle::ops
