// $((…)) and ((…)): whole numbers with the operators of C, names of variables with or without a $, assignments.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace heddle::advisor::shell {

/// A number, or why there is none: a mark (state.h) of what it needs and nobody knows, "" where the text is no
/// expression, divides by zero or overflows.
struct Number {
  std::optional<int64_t> value;
  std::string unknown;
};

struct Names {
  std::function<Number(const std::string&)> value;
  std::function<void(const std::string&, const Number&)> assign;
};

/// `text` may hold marks instead of operands. Both sides of && and || and both values of ? : are read; the one
/// that does not count may be unknown.
Number arithmetic(std::string_view text, const Names& names);

}  // namespace heddle::advisor::shell
