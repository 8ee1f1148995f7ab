#include "heddle/ir/listing.h"

#include <algorithm>

namespace heddle::ir {

std::string_view name_of(Role role) {
  static constexpr std::string_view names[] = {"input",       "activation", "metadata",  "gradient", "weight",
                                               "accumulator", "optimizer",  "statistic", "cache"};
  return names[static_cast<int>(role)];
}

std::string_view name_of(Space space) {
  static constexpr std::string_view names[] = {"device", "host", "shared"};
  return names[static_cast<int>(space)];
}

std::string_view name_of(Phase phase) {
  static constexpr std::string_view names[] = {"begin", "F", "I", "W", "check", "end"};
  return names[static_cast<int>(phase)];
}

std::string_view name_of(StreamKind kind) {
  static constexpr std::string_view names[] = {"compute", "comm", "copy_in", "copy_out"};
  return names[static_cast<int>(kind)];
}

std::string Listing::unique_name(const std::string& wanted) {
  if (!by_name_.contains(wanted)) return wanted;
  for (int i = 2;; ++i) {
    std::string name = fmt::format("{}.{}", wanted, i);
    if (!by_name_.contains(name)) return name;
  }
}

ValueId Listing::add_value(Value value) {
  HEDDLE_CHECK(!by_name_.contains(value.name), "two values are named '{}'", value.name);
  const auto id = static_cast<ValueId>(values.size());
  by_name_.emplace(value.name, id);
  values.push_back(std::move(value));
  return id;
}

ValueId Listing::find(std::string_view name) const {
  const auto at = by_name_.find(name);
  return at == by_name_.end() ? none : at->second;
}

ValueId Listing::rows(ValueId id, int64_t begin, int64_t end) {
  HEDDLE_CHECK(!value(id).shape.empty(), "'{}' has no rows", value(id).name);
  Shape shape = value(id).shape;
  shape[0].count = end - begin;
  int64_t step = 1;
  for (size_t i = 1; i < shape.size(); ++i) step *= shape[i].count;
  return part(id, "rows", begin, end, std::move(shape), step);
}

ValueId Listing::elements_of(ValueId id, int64_t begin, int64_t end) {
  return part(id, "elements", begin, end, {{end - begin, none}}, 1);
}

ValueId Listing::matrices(ValueId id, int64_t count) {
  const Shape& shape = value(id).shape;
  HEDDLE_CHECK(shape.size() == 2 && count > 0 && shape[0].count % count == 0, "'{}' is not {} matrices",
               value(id).name, count);
  const Dim rows{shape[0].count / count, none}, columns = shape[1];
  return part(id, "matrices", 0, count, {{count, none}, rows, columns}, rows.count * columns.count);
}

ValueId Listing::part(ValueId id, std::string_view what, int64_t begin, int64_t end, Shape shape, int64_t step) {
  const Value& whole = value(id);
  std::string name = fmt::format("{}.{}[{}:{}]", whole.name, what, begin, end);
  if (const ValueId known = find(name); known != none) return known;
  const bool fixed =
      std::all_of(whole.shape.begin(), whole.shape.end(), [](const Dim& dim) { return dim.is_static(); });
  HEDDLE_CHECK(fixed && whole.layout == Layout::rows && whole.part_of == none, "'{}' can't be taken in parts",
               whole.name);
  HEDDLE_CHECK(begin >= 0 && begin < end && step > 0 && end <= elements(id, FixedRows()) / step,
               "'{}' has no {} {} to {}", whole.name, what, begin, end);
  Value value = whole;
  value.name = std::move(name);
  value.shape = std::move(shape);
  value.part_of = id;
  value.first_element = begin * step;
  return add_value(std::move(value));
}

bool Listing::overlap(ValueId a, ValueId b) const {
  if (base(a) != base(b)) return false;
  const Value &x = value(a), &y = value(b);
  if (x.part_of == none || y.part_of == none) return true;
  const FixedRows rows;
  return x.first_element < y.first_element + elements(b, rows) &&
         y.first_element < x.first_element + elements(a, rows);
}

std::vector<ValueId> Listing::append(Op op, const std::vector<std::string>& names) {
  check_names(op);
  std::vector<Value> outputs = op.def->infer(*this, op);
  HEDDLE_CHECK(names.size() == outputs.size(), "op '{}' has {} outputs, {} names given", op.kind(), outputs.size(),
               names.size());
  op.out.resize(outputs.size(), none);
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (op.out[i] != none) continue;
    if (runs_on_host(op)) outputs[i].space = Space::host;
    outputs[i].name = unique_name(names[i]);
    op.out[i] = add_value(std::move(outputs[i]));
  }
  ops.push_back(std::move(op));
  return ops.back().out;
}

int64_t Listing::elements(ValueId id, const RowCounts& rows) const {
  int64_t product = 1;
  for (const Dim& dim : value(id).shape) {
    product *= dim.is_static() ? dim.count : dim.count * rows.rows(dim.rows_of);
  }
  return product;
}

int64_t Listing::bytes(ValueId id, const RowCounts& rows) const {
  const Value& v = value(id);
  return v.layout == Layout::packed ? v.packed_bytes : elements(id, rows) * size_of(v.dtype);
}

}  // namespace heddle::ir
