// The three ways in which something can go wrong, and the checks that raise them.
//
//   ConfigError    the user's input: names the place, what was found, what is accepted
//   InternalError  a bug of ours: a broken invariant
//   SystemError    the world: a vendor call, I/O, a peer; carries a code and the rank
//
// An expected "no" is not an error: it is a value with a reason (see Support).
#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace heddle {

class Error : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

class ConfigError : public Error {
  using Error::Error;
};

class InternalError : public Error {
  using Error::Error;
};

class SystemError : public Error {
 public:
  SystemError(int code, const std::string& what) : Error(what), code(code) {}
  int code;       // errno or the vendor's code
  int rank = -1;  // set where known
};

/// "Supported", or why not.
struct Support {
  bool ok = true;
  std::string reason;
  static Support yes() { return {}; }
  static Support no(std::string why) { return {false, std::move(why)}; }
  explicit operator bool() const { return ok; }
};

[[noreturn]] void throw_config_error(fmt::string_view text, fmt::format_args args);

template <class... Args>
[[noreturn]] void config_error(fmt::format_string<Args...> text, Args&&... args) {
  throw_config_error(text, fmt::make_format_args(args...));
}

/// A message's form, and the line that states it (by what Clang 14 knows as well, which lacks source_location).
template <class... Args>
struct PlacedText {
  template <class Text>
  consteval PlacedText(const Text& text, const char* file = __builtin_FILE(),
                       int line = __builtin_LINE())  // NOLINT
      : text(text), file(file), line(line) {}
  fmt::format_string<Args...> text;
  const char* file;
  int line;
};

/// InternalError with " (heddle/ir/verify/verify.cpp:84)" behind the message.
/// With a condition: " [condition]" before that.
[[noreturn]] void throw_internal_error(fmt::string_view text, fmt::format_args args, std::string_view file,
                                       int line, std::string_view condition = "");

template <class... Args>
[[noreturn]] void internal_error(PlacedText<std::type_identity_t<Args>...> text, Args&&... args) {
  throw_internal_error(text.text, fmt::make_format_args(args...), text.file, text.line);
}

template <class... Args>
[[noreturn]] void check_failed(std::string_view condition, PlacedText<std::type_identity_t<Args>...> text,
                               Args&&... args) {
  throw_internal_error(text.text, fmt::make_format_args(args...), text.file, text.line, condition);
}

/// The name of `accepted` nearest to `found` by edit distance, or "" when none is near.
std::string nearest_name(std::string_view found, const std::vector<std::string>& accepted);

/// ", did you mean 'x'?" or "" when no accepted name is near.
std::string did_you_mean(std::string_view found, const std::vector<std::string>& accepted);

}  // namespace heddle

/// Raises InternalError with the message, the condition and the line when `condition` is false.
#define HEDDLE_CHECK(condition, ...)                                   \
  do {                                                                 \
    if (!(condition)) ::heddle::check_failed(#condition, __VA_ARGS__); \
  } while (false)
