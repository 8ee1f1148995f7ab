// JSON as Python's json module writes and reads it; most files of lines come from it. NaN, Infinity and -Infinity
// are numbers. A surrogate alone (\ud800) is a character, here U+FFFD. An integer may have any number of digits
// (beyond 64 bits it is a real number here). The last value of a key that comes twice counts.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string_view>

namespace heddle::formats {

struct PythonJsonLimits {
  int most_depth = 64;
  bool any_bytes = false;  // strings may hold bytes that are no UTF-8
};

/// One value with nothing but blanks around it. ConfigError without a place for what is none: what is wrong, and at
/// which byte of the text.
nlohmann::ordered_json parse_python_json(std::string_view text, const PythonJsonLimits& limits = {});

/// Finds where a value ends in a text that comes piece by piece.
class JsonValueEnd {
 public:
  /// Looks on from where the last call ended; `text` begins with the value and has grown since. The place behind
  /// the value, or npos: more is needed. A number or a word ends before what cannot be of it, or at the text's end
  /// where that is `all`.
  size_t find(std::string_view text, bool all);

 private:
  size_t at_ = 0;
  int depth_ = 0;
  bool in_string_ = false, escaped_ = false;
};

}  // namespace heddle::formats
