// $((…)): whole numbers, + - * / %, comparisons, parentheses, names of variables with or without a $.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace heddle::search {

/// The value of a name; nullopt when it isn't a whole number (an unset one is 0, as in a shell).
using ShellLookUp = std::function<std::optional<int64_t>(const std::string&)>;

/// nullopt for what isn't such an expression, a division by zero, or an overflow.
std::optional<int64_t> shell_arithmetic(std::string_view text, const ShellLookUp& look_up);

}  // namespace heddle::search
