#include "heddle/ops/update/joined.h"

#include <algorithm>
#include <array>

#include "heddle/ops/ops.h"
#include "heddle/ops/rule.h"

namespace heddle::ops {

namespace {

// Each part by its own rule.
std::vector<Value> infer_parts(const Listing& listing, const Op& op) {
  const Rule rule(listing, op);
  const size_t parts = parts_of(op);
  rule.require(parts > 0 && op.updates.size() % parts == 0, "needs operands and updates of each of its parts");
  std::vector<Value> made;
  for (size_t i = 0; i < parts; ++i) {
    const Op part = part_of(op, i);
    for (Value& value : part.def->infer(listing, part)) made.push_back(std::move(value));
  }
  return made;
}

// clang-format off
const OpDef grad_square_sums{
    .kind = "grad_square_sums",
    .operands = "gradients*", .results = "parts*",
    .infer = infer_parts,
};
const OpDef adamw_many{
    .kind = "adamw_many",
    .operands = "clip hyper gradients*", .updates = "states*",
    .attributes = "beta1 beta2 epsilon decay copy",
    .infer = infer_parts,
};
const OpDef adamw_split_many{
    .kind = "adamw_split_many",
    .operands = "clip hyper gradients*", .updates = "states*",
    .attributes = "beta1 beta2 epsilon decay",
    .infer = infer_parts,
};
const OpDef average_masters{
    .kind = "average_masters",
    .operands = "clip masters*", .updates = "averages*", .attributes = "decay",
    .infer = infer_parts,
};
// clang-format on

struct Form {
  std::string_view single;
  const OpDef* joined;
  size_t results;  // of one part
};
constexpr std::array<Form, 4> kForms{{{"grad_square_sum", &grad_square_sums, 1},
                                      {"adamw", &adamw_many, 0},
                                      {"adamw_split", &adamw_split_many, 0},
                                      {"average_master", &average_masters, 0}}};

const Form& form_of(const OpDef& joined) {
  const auto at =
      std::find_if(kForms.begin(), kForms.end(), [&](const Form& form) { return form.joined == &joined; });
  HEDDLE_CHECK(at != kForms.end(), "op '{}' is no joined form", joined.kind);
  return *at;
}

}  // namespace

std::vector<const OpDef*> joined_ops() {
  std::vector<const OpDef*> defs;
  for (const Form& form : kForms) defs.push_back(form.joined);
  return defs;
}

const OpDef* joined_form(const OpDef& single) {
  for (const Form& form : kForms) {
    if (form.single == single.kind) return form.joined;
  }
  return nullptr;
}

size_t shared_operands(const OpDef& joined) { return ir::names_in(joined.operands).size() - 1; }

size_t parts_of(const Op& joined) {
  const size_t shared = shared_operands(*joined.def);
  return joined.in.size() < shared ? 0 : joined.in.size() - shared;
}

Op join(const std::vector<Op>& parts) {
  Op joined = parts.at(0);
  joined.def = joined_form(*joined.def);
  HEDDLE_CHECK(joined.def != nullptr, "op '{}' has no joined form", parts[0].kind());
  const auto shared = static_cast<std::ptrdiff_t>(shared_operands(*joined.def));
  for (size_t i = 1; i < parts.size(); ++i) {
    joined.in.insert(joined.in.end(), parts[i].in.begin() + shared, parts[i].in.end());
    joined.out.insert(joined.out.end(), parts[i].out.begin(), parts[i].out.end());
    joined.updates.insert(joined.updates.end(), parts[i].updates.begin(), parts[i].updates.end());
  }
  return joined;
}

Op part_of(const Op& joined, size_t i) {
  const Form& form = form_of(*joined.def);
  const size_t parts = parts_of(joined), shared = shared_operands(*joined.def),
               updates = joined.updates.size() / parts;
  Op part = joined;
  part.def = &find(form.single);
  const auto slice = [&](const std::vector<ValueId>& all, size_t first, size_t count) {
    const size_t end = std::min(all.size(), first + count), begin = std::min(first, end);
    return std::vector<ValueId>(all.begin() + static_cast<std::ptrdiff_t>(begin),
                                all.begin() + static_cast<std::ptrdiff_t>(end));
  };
  part.in = slice(joined.in, 0, shared);
  part.in.push_back(joined.in.at(shared + i));
  part.out = slice(joined.out, i * form.results, form.results);
  part.updates = slice(joined.updates, i * updates, updates);
  return part;
}

}  // namespace heddle::ops
