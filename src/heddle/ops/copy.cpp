// Copies between the device's arena and the host's, each on a stream of its own. What lies on the host keeps its
// shape and type; passes write these ops around values that needn't stay on the device.
#include "heddle/ops/ops.h"
#include "heddle/ops/rule.h"

namespace heddle::ops {

namespace {

std::vector<Value> copied(const Stage& stage, const Op& op, ir::Space from, ir::Space to) {
  const Rule rule(stage, op);
  const Value& x = rule.in(0);
  rule.require(x.layout == ir::Layout::rows, "packed weights stay on the device");
  HEDDLE_CHECK(x.space == from, "op '{}' copies '{}' from the {}, where it is not", op.kind(), x.name,
               name_of(from));
  Value y = rule.like(0);
  if (!is_persistent(x.role)) y.role = x.role;
  y.space = to;
  return {std::move(y)};
}

const OpDef copy_out{
    .kind = "copy_out",
    .operands = "x", .results = "y",
    .stream = StreamKind::copy_out,
    .moves = ir::Moves::to_host,
    .infer = [](const Stage& stage, const Op& op) { return copied(stage, op, ir::Space::device, ir::Space::host); },
    .cost = operand_cost,
};

const OpDef copy_in{
    .kind = "copy_in",
    .operands = "x", .results = "y",
    .stream = StreamKind::copy_in,
    .moves = ir::Moves::from_host,
    .infer = [](const Stage& stage, const Op& op) { return copied(stage, op, ir::Space::host, ir::Space::device); },
    .cost = operand_cost,
};

}  // namespace

std::vector<const OpDef*> copy_ops() { return {&copy_out, &copy_in}; }

}  // namespace heddle::ops
