#include "heddle/ops/rule.h"

namespace heddle::ops {

namespace {
std::string text(const ir::Shape& shape) {
  std::string out;
  for (const Dim& dim : shape) {
    out += out.empty() ? "" : ", ";
    out +=
        dim.is_static() ? fmt::format("{}", dim.count) : fmt::format("{}·rows of value {}", dim.count, dim.rows_of);
  }
  return "[" + out + "]";
}
}  // namespace

const Value& Rule::in(size_t i) const {
  HEDDLE_CHECK(has(i), "op '{}' lacks operand {}", op_.kind(), i);
  return listing_.value(op_.in[i]);
}

const Value& Rule::updated(size_t i) const {
  HEDDLE_CHECK(i < op_.updates.size(), "op '{}' lacks updated operand {}", op_.kind(), i);
  return listing_.value(op_.updates[i]);
}

const Dim& Rule::dim(size_t i, size_t axis) const {
  const Value& v = in(i);
  HEDDLE_CHECK(axis < v.shape.size(), "op '{}': operand '{}' has shape {}, needs axis {}", op_.kind(), v.name,
               text(v.shape), axis);
  return v.shape[axis];
}

int64_t Rule::size(size_t i, size_t axis) const {
  const Dim& d = dim(i, axis);
  HEDDLE_CHECK(d.is_static(), "op '{}': axis {} of operand '{}' must be static", op_.kind(), axis, in(i).name);
  return d.count;
}

Value Rule::like(size_t i) const { return output(dtype(i), in(i).shape); }

void Rule::shape(size_t i, const ir::Shape& expected) const {
  HEDDLE_CHECK(in(i).shape == expected, "op '{}': operand '{}' has shape {}, expected {}", op_.kind(), in(i).name,
               text(in(i).shape), text(expected));
}

void Rule::same(size_t i, size_t j) const {
  shape(i, in(j).shape);
  HEDDLE_CHECK(in(i).dtype == in(j).dtype, "op '{}': operand '{}' is {}, '{}' is {}", op_.kind(), in(i).name,
               heddle::name_of(in(i).dtype), in(j).name, heddle::name_of(in(j).dtype));
}

void Rule::is(size_t i, Dtype expected, const ir::Shape& of, std::string_view what) const {
  require(dtype(i) == expected, what);
  shape(i, of);
}

void Rule::require(bool holds, std::string_view what) const {
  HEDDLE_CHECK(holds, "op '{}': {}", op_.kind(), what);
}

int64_t Rule::quotient(int64_t whole, int64_t part, std::string_view what) const {
  require(part >= 1 && whole % part == 0, what);
  return whole / part;
}

void check_turned_rows(const Rule& rule, const Attributes& a) {
  rule.require(rule.size(0, 1) == a.integer("heads") * a.integer("head_dim"), "columns are not heads × head_dim");
  rule.require(a.integer("rope_dim") % 2 == 0 && a.integer("rope_dim") <= a.integer("head_dim"),
               "rope_dim is odd or exceeds head_dim");
  const int64_t most = a.integer("head_dim") - a.integer("rope_dim"), first = a.integer_or("first", most);
  rule.require(first >= 0 && first <= most, "the rotated elements end outside of the head");
  rule.shape(1, {fixed(a.integer("sequence")), fixed(a.integer("rope_dim"))});
}

void check_places(const Rule& rule, size_t places) {
  rule.is(places, Dtype::i32, {rule.dim(0, 0)}, "places are not i32");
}

std::vector<ValueId> trimmed(std::vector<ValueId> in) {
  while (!in.empty() && in.back() == none) in.pop_back();
  return in;
}

Value output(Dtype dtype, ir::Shape shape, Role role) {
  Value v;
  v.dtype = dtype;
  v.shape = std::move(shape);
  v.role = role;
  return v;
}

double rows_of(const Listing& listing, ValueId id, const RowCounts& rows) {
  return static_cast<double>(listing.elements(id, rows)) / columns_of(listing, id);
}

double columns_of(const Listing& listing, ValueId id) {
  const ir::Shape& shape = listing.value(id).shape;
  return shape.empty() ? 1.0 : static_cast<double>(shape.back().count);
}

}  // namespace heddle::ops
