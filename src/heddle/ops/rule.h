// The tools of op definitions' rules: checks on operands, and costs from operand sizes.
#pragma once

#include <string>
#include <type_traits>
#include <vector>

#include "heddle/ir/gradient.h"
#include "heddle/ir/listing.h"

namespace heddle::ops {

using ir::Attributes;
using ir::Cost;
using ir::Dim;
using ir::GradientWriter;
using ir::Listing;
using ir::none;
using ir::Op;
using ir::OpDef;
using ir::operand_cost;
using ir::Phase;
using ir::Role;
using ir::RowCounts;
using ir::StreamKind;
using ir::Value;
using ir::ValueId;

/// The accumulation type of a compute type.
constexpr Dtype wide(Dtype dtype) { return dtype == Dtype::f64 ? Dtype::f64 : Dtype::f32; }

/// The type that an attribute names for a result.
inline Dtype dtype_named(const std::string& word) {
  return word == "f64" ? Dtype::f64 : word == "f32" ? Dtype::f32 : Dtype::bf16;
}

/// Elements of a value, of a shape without symbols.
inline int64_t static_elements(const Value& v) {
  int64_t product = 1;
  for (const ir::Dim& dim : v.shape) product *= dim.count;
  return product;
}

/// The operands of an op under inference. Every accessor raises InternalError naming the op and the operand.
class Rule {
 public:
  Rule(const Listing& listing, const Op& op) : listing_(listing), op_(op) {}

  bool has(size_t i) const { return i < op_.in.size() && op_.in[i] != none; }
  bool has(std::string_view name) const { return has(place(name)); }
  /// The place of the operand of this name; beyond all operands where the op's kind has none of it.
  size_t place(std::string_view name) const { return static_cast<size_t>(ir::place_of(name, op_.def->operands)); }
  const Value& in(size_t i) const;
  const Value& updated(size_t i) const;
  const Dim& dim(size_t i, size_t axis) const;
  int64_t size(size_t i, size_t axis) const;  // of a static dim
  Dtype dtype(size_t i) const { return in(i).dtype; }
  Value like(size_t i) const;  // an output of operand i's shape and type

  void shape(size_t i, const ir::Shape& expected) const;  // exact
  void same(size_t i, size_t j) const;                    // shape and dtype
  /// The dtype, then the shape; `what` is said of another dtype.
  void is(size_t i, Dtype dtype, const ir::Shape& expected, std::string_view what) const;
  void require(bool holds, std::string_view what) const;
  /// whole ÷ part, of a part that is at least one and divides it.
  int64_t quotient(int64_t whole, int64_t part, std::string_view what) const;

 private:
  const Listing& listing_;
  const Op& op_;
};

/// OpDef::infer out of a lambda of the op's Rule, or of the Rule and the op. One that returns nothing only checks.
template <class Infer>
constexpr auto by_rule(Infer) {
  return [](const Listing& listing, const Op& op) -> std::vector<Value> {
    const auto infer = [&] {
      if constexpr (std::is_invocable_v<Infer, Rule>) {
        return Infer()(Rule(listing, op));
      } else {
        return Infer()(Rule(listing, op), op);
      }
    };
    if constexpr (std::is_void_v<decltype(infer())>) {
      infer();
      return {};
    } else {
      return infer();
    }
  };
}

/// An output value; the name is given by Listing::append.
Value output(Dtype dtype, ir::Shape shape, Role role = Role::activation);
inline Dim fixed(int64_t count) { return Dim{count, none}; }

/// The check of every op that turns rows by their places. Operand 0 has rows of `heads` heads, of each of which
/// `rope_dim` columns turn by operand 1, a table of `sequence` places.
void check_turned_rows(const Rule& rule, const Attributes& attributes);

/// The places of the rows of operand 0 in a cache, at operand `places`.
void check_places(const Rule& rule, size_t places);

/// Rows of a value: all dims but the last, at run time.
double rows_of(const Listing& listing, ValueId id, const RowCounts& rows);
double columns_of(const Listing& listing, ValueId id);

/// The operand of an op, or none when it is absent.
inline ValueId operand(const Op& op, size_t i) { return i < op.in.size() ? op.in[i] : none; }
/// Operands without those at the end that are absent.
std::vector<ValueId> trimmed(std::vector<ValueId> in);

}  // namespace heddle::ops
