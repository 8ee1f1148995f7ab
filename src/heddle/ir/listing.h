// The listing of one pipeline rank: one table of values and one list of ops, each bearing its phase.
//
// Several stages of one rank are chunks of one list. They run at different times, but share values: what a chunk
// hands to another of the same rank, a weight that both use, the norm of all gradients.
//
// The forward, input-gradient and weight-gradient programs are filters over the one list. A value belongs to a
// frame (one a microbatch) or persists (is_persistent). Ops are in an order in which every read follows its write.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "heddle/ir/inputs.h"
#include "heddle/ir/op.h"

namespace heddle::ir {

/// The microbatches that pass through a chunk: the route-th of `routes` equal parts of them.
struct Chunk {
  int route = 0;
  int routes = 1;
};

class Listing {
 public:
  std::string name = "listing";
  std::vector<Chunk> chunks{{}};
  std::vector<Input> inputs;  // what it takes from the host; each name once
  std::vector<Value> values;
  std::vector<Op> ops;
  /// For each trained weight, in order of first use: its accumulators, one a use, summed in this order.
  std::map<ValueId, std::vector<ValueId>> accumulators;

  const Value& value(ValueId id) const { return values.at(static_cast<size_t>(id)); }
  Value& value(ValueId id) { return values.at(static_cast<size_t>(id)); }

  /// Adds a persistent value. InternalError if the name is taken.
  ValueId add_value(Value value);
  /// Adds an input, or finds it where the listing has it already. InternalError if it has another of that name.
  void add_input(const Input& input);
  /// The input of that name, or null.
  const Input* find_input(std::string_view name) const;
  /// The value of that name, or none.
  ValueId find(std::string_view name) const;

  /// Rows `begin` to `end` of a value as a value: "x.rows[0:4]", made on first asking. InternalError where the
  /// value has no such rows, is a part itself, or has no static shape in rows.
  ValueId rows(ValueId id, int64_t begin, int64_t end);
  /// Rows `begin` to `end` of each run of `every` rows: "x.rows[0:4/16]". With one run only, "x.rows[0:4]".
  ValueId rows(ValueId id, int64_t begin, int64_t end, int64_t every);
  /// Elements `begin` to `end` in their order, as a vector: "x.elements[0:1024]".
  ValueId elements_of(ValueId id, int64_t begin, int64_t end);
  /// The rows of a matrix as `count` matrices of equally many, one below the other: "x.matrices[0:8]".
  ValueId matrices(ValueId id, int64_t count);
  /// The value whose storage it uses: itself, unless it is a part.
  ValueId base(ValueId id) const { return value(id).part_of == none ? id : value(id).part_of; }
  /// True if both use some of the same elements.
  bool overlap(ValueId a, ValueId b) const;
  /// Calls `visit` with the first element and the end of each stretch of its base that a value of static shape
  /// covers, in order.
  template <class Visit>
  void each_stretch(ValueId id, const Visit& visit) const {
    const Value& v = value(id);
    const int64_t length = elements_if_static(id) / v.stretches;
    for (int64_t i = 0, at = v.first_element; i < v.stretches; ++i, at += v.stretch_step) visit(at, at + length);
  }

  /// Appends an op: infers its outputs and names them `names[i]` (a suffix makes them unique). Where `op.out` holds
  /// a value already, a part or one that is written again, that one is written. Returns the op's outputs.
  std::vector<ValueId> append(Op op, const std::vector<std::string>& names);

  /// Elements of a shape at given run-time rows.
  int64_t elements(ValueId id, const RowCounts& rows) const;
  int64_t bytes(ValueId id, const RowCounts& rows) const;

 private:
  ValueId part(ValueId id, std::string_view what, int64_t begin, int64_t end, Shape shape, int64_t step);
  ValueId part(Value value, ValueId of);
  int64_t elements_if_static(ValueId id) const;
  std::string unique_name(const std::string& wanted);
  std::map<std::string, ValueId, std::less<>> by_name_;
  std::map<std::string, int> numbered_;  // the last number that a name was given behind it
};

/// Row counts for listings without dynamic dims, or a fixed number for every counting value.
struct FixedRows : RowCounts {
  explicit FixedRows(int64_t count = 0) : count(count) {}
  int64_t rows(ValueId) const override { return count; }
  int64_t count;
};

}  // namespace heddle::ir
