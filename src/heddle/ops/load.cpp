// load: a value of an input of the listing (ir/inputs.h).
#include "heddle/ops/ops.h"
#include "heddle/ops/rule.h"

namespace heddle::ops {

namespace {

// clang-format off
const OpDef load{
    .kind = "load",
    .results = "value", .attributes = "input",
    .stream = StreamKind::copy_in,
    .loads = true,
    .infer = [](const Listing& listing, const Op& op) {
      const std::string& name = op.attributes.word("input");
      const ir::Input* input = listing.find_input(name);
      HEDDLE_CHECK(input != nullptr, "'load' names '{}', which is no input of {}", name, listing.name);
      ir::Shape shape;
      for (const int64_t size : input->shape) shape.push_back(fixed(size));
      return std::vector{output(input->dtype, std::move(shape), Role::input)};
    },
};
// clang-format on

}  // namespace

std::vector<const OpDef*> load_ops() { return {&load}; }

}  // namespace heddle::ops
