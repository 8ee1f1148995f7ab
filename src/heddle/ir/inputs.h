// The inputs that a listing takes from the host, one row each. A `load` op makes a value of an input, by its name.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "heddle/base/dtype.h"
#include "heddle/ir/attributes.h"

namespace heddle::ir {

/// The frequency at which the host gives an input: for each microbatch, for each step, or once until it gives
/// another.
enum class Given : uint8_t { microbatch, step, standing };
std::string_view name_of(Given given);

/// The contents of an input that the host does not give. No default (it must be given), the same number in each
/// element, or the numbers 0, 1, 2, … in the order of the elements.
struct Default {
  enum class Kind : uint8_t { none, number, in_order };
  Kind kind = Kind::none;
  double number = 0;

  static Default of(double number) { return {Kind::number, number}; }
  static Default in_order() { return {Kind::in_order, 0}; }
  bool operator==(const Default&) const = default;
};

struct Input {
  std::string name;
  Dtype dtype = Dtype::f32;
  std::vector<int64_t> shape;
  Given given = Given::step;
  std::string owner;  // who gives it: "microbatch", "rates", "migration", …
  Default otherwise;
  Attributes attributes;  // by which the owner makes it

  int64_t elements() const;
  int64_t bytes() const { return elements() * size_of(dtype); }
  bool operator==(const Input&) const = default;
};

/// "i32[8] standing of migration else in_order", attributes in braces behind it.
std::string text_of(const Input& input);

}  // namespace heddle::ir
