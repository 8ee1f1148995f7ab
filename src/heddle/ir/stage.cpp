#include "heddle/ir/stage.h"

namespace heddle::ir {

std::string_view name_of(Role role) {
  static constexpr std::string_view names[] = {"input",  "activation",  "metadata",  "gradient",
                                               "weight", "accumulator", "optimizer", "statistic"};
  return names[static_cast<int>(role)];
}

std::string_view name_of(Space space) { return space == Space::device ? "device" : "host"; }

std::string_view name_of(Phase phase) {
  static constexpr std::string_view names[] = {"begin", "F", "I", "W", "end"};
  return names[static_cast<int>(phase)];
}

std::string_view name_of(StreamKind kind) {
  static constexpr std::string_view names[] = {"compute", "comm", "copy_in", "copy_out"};
  return names[static_cast<int>(kind)];
}

std::string Stage::unique_name(const std::string& wanted) {
  if (!by_name_.contains(wanted)) return wanted;
  for (int i = 2;; ++i) {
    std::string name = fmt::format("{}.{}", wanted, i);
    if (!by_name_.contains(name)) return name;
  }
}

ValueId Stage::add_value(Value value) {
  HEDDLE_CHECK(!by_name_.contains(value.name), "two values are named '{}'", value.name);
  const auto id = static_cast<ValueId>(values.size());
  by_name_.emplace(value.name, id);
  values.push_back(std::move(value));
  return id;
}

ValueId Stage::find(std::string_view name) const {
  const auto at = by_name_.find(name);
  return at == by_name_.end() ? none : at->second;
}

std::vector<ValueId> Stage::append(Op op, const std::vector<std::string>& names) {
  check_names(op);
  std::vector<Value> outputs = op.def->infer(*this, op);
  HEDDLE_CHECK(names.size() == outputs.size(), "op '{}' has {} outputs, {} names given", op.kind(), outputs.size(),
               names.size());
  for (size_t i = 0; i < outputs.size(); ++i) {
    outputs[i].name = unique_name(names[i]);
    op.out.push_back(add_value(std::move(outputs[i])));
  }
  ops.push_back(std::move(op));
  return ops.back().out;
}

int64_t Stage::elements(ValueId id, const RowCounts& rows) const {
  int64_t product = 1;
  for (const Dim& dim : value(id).shape) {
    product *= dim.is_static() ? dim.count : dim.count * rows.rows(dim.rows_of);
  }
  return product;
}

int64_t Stage::bytes(ValueId id, const RowCounts& rows) const {
  const Value& v = value(id);
  return v.layout == Layout::packed ? v.packed_bytes : elements(id, rows) * size_of(v.dtype);
}

}  // namespace heddle::ir
