#include "heddle/ir/listing.h"

#include <algorithm>

namespace heddle::ir {

std::string_view name_of(Role role) {
  static constexpr std::string_view names[] = {"input",       "activation", "metadata",  "gradient", "weight",
                                               "accumulator", "optimizer",  "statistic", "cache"};
  return names[static_cast<int>(role)];
}

std::string_view name_of(Space space) {
  static constexpr std::string_view names[] = {"device", "host", "shared", "nowhere"};
  return names[static_cast<int>(space)];
}

std::string_view name_of(Phase phase) {
  static constexpr std::string_view names[] = {"begin", "F", "I", "W", "end"};
  return names[static_cast<int>(phase)];
}

std::string_view name_of(StreamKind kind) {
  static constexpr std::string_view names[] = {"compute", "comm", "copy_in", "copy_out"};
  return names[static_cast<int>(kind)];
}

std::string Listing::unique_name(const std::string& wanted) {
  if (!by_name_.contains(wanted)) return wanted;
  int& last = numbered_.try_emplace(wanted, 1).first->second;  // all before it are taken
  for (;; ++last) {
    std::string name = fmt::format("{}.{}", wanted, last + 1);
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

void Listing::add_input(const Input& input) {
  const Input* known = find_input(input.name);
  HEDDLE_CHECK(known == nullptr || *known == input, "input '{}' is {}, and {}", input.name,
               text_of(known == nullptr ? input : *known), text_of(input));
  if (known == nullptr) inputs.push_back(input);
}

const Input* Listing::find_input(std::string_view name) const {
  const auto at =
      std::find_if(inputs.begin(), inputs.end(), [&](const Input& input) { return input.name == name; });
  return at == inputs.end() ? nullptr : &*at;
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

ValueId Listing::rows(ValueId id, int64_t begin, int64_t end, int64_t every) {
  const Value& whole = value(id);
  HEDDLE_CHECK(!whole.shape.empty() && every > 0 && whole.shape[0].is_static() &&
                   whole.shape[0].count % every == 0 && whole.shape[0].count > 0,
               "the rows of '{}' are not whole runs of {}", whole.name, every);
  const int64_t runs = whole.shape[0].count / every;
  if (runs == 1 || (begin == 0 && end == every)) return rows(id, begin * runs, end * runs);
  std::string name = fmt::format("{}.rows[{}:{}/{}]", whole.name, begin, end, every);
  if (const ValueId known = find(name); known != none) return known;
  HEDDLE_CHECK(begin >= 0 && begin < end && end <= every, "'{}' has no rows {} to {} of every {}", whole.name,
               begin, end, every);
  Value value = whole;
  value.name = std::move(name);
  value.shape[0].count = runs * (end - begin);
  const int64_t row = elements(id, FixedRows()) / whole.shape[0].count;
  value.first_element = begin * row;
  value.stretches = runs;
  value.stretch_step = every * row;
  return part(std::move(value), id);
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
  HEDDLE_CHECK(begin >= 0 && begin < end && step > 0 && end <= elements(id, FixedRows()) / step,
               "'{}' has no {} {} to {}", whole.name, what, begin, end);
  Value value = whole;
  value.name = std::move(name);
  value.shape = std::move(shape);
  value.first_element = begin * step;
  return part(std::move(value), id);
}

ValueId Listing::part(Value value, ValueId of) {
  const Value& whole = this->value(of);
  const bool fixed =
      std::all_of(whole.shape.begin(), whole.shape.end(), [](const Dim& dim) { return dim.is_static(); });
  HEDDLE_CHECK(fixed && whole.layout == Layout::rows && whole.part_of == none, "'{}' can't be taken in parts",
               whole.name);
  value.part_of = of;
  return add_value(std::move(value));
}

int64_t Listing::elements_if_static(ValueId id) const {
  for (const Dim& dim : value(id).shape) {
    HEDDLE_CHECK(dim.is_static(), "the rows of '{}' are counted", value(id).name);
  }
  return elements(id, FixedRows());
}

bool Listing::overlap(ValueId a, ValueId b) const {
  if (a == b) return true;
  if (base(a) != base(b)) return false;
  const Value &x = value(a), &y = value(b);
  if (x.part_of == none || y.part_of == none) return true;
  const FixedRows rows;
  const int64_t x_length = elements(a, rows) / x.stretches, y_length = elements(b, rows) / y.stretches;
  int64_t i = 0, j = 0;  // both go through their stretches once
  while (i < x.stretches && j < y.stretches) {
    const int64_t x_first = x.first_element + i * x.stretch_step, y_first = y.first_element + j * y.stretch_step;
    if (x_first < y_first + y_length && y_first < x_first + x_length) return true;
    // Both repeat alike: one round decides for all.
    if (x.stretches == y.stretches && x.stretch_step == y.stretch_step && i > 0 && j > 0) return false;
    ++(x_first < y_first ? i : j);
  }
  return false;
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
