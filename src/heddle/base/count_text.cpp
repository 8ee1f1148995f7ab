#include "heddle/base/count_text.h"

#include <array>
#include <charconv>
#include <cmath>
#include <string>
#include <utility>

#include "heddle/base/real_text.h"

namespace heddle {

namespace {

constexpr double kBeyond = 0x1p63;

// The number without the marks between groups of digits; nothing where a comma parts other groups than thousands.
std::optional<std::string> ungrouped(std::string_view text) {
  const size_t comma = text.find(',');
  std::string plain;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '_') {
      const auto digit = [&](size_t at) { return at < text.size() && text[at] >= '0' && text[at] <= '9'; };
      if (i == 0 || !digit(i - 1) || !digit(i + 1)) return std::nullopt;
    } else if (c == ',') {
      const size_t next = text.find_first_not_of("0123456789", i + 1);
      const size_t end = next == std::string_view::npos ? text.size() : next;
      const bool ends = end == text.size() || text[end] == ',' || text[end] == '.';
      if (i == 0 || end - i - 1 != 3 || !ends) return std::nullopt;
    } else {
      plain += c;
    }
  }
  if (comma != std::string_view::npos) {
    const size_t begin = text.find_first_of("0123456789");
    if (begin == std::string_view::npos || comma < begin || comma - begin > 3) return std::nullopt;
  }
  return plain;
}

// The factor of a unit; 0 for what is none.
double factor_of(std::string_view unit) {
  static constexpr std::array<std::pair<std::string_view, double>, 10> units{{{"", 1},
                                                                              {"k", 1e3},
                                                                              {"m", 1e6},
                                                                              {"g", 1e9},
                                                                              {"b", 1e9},
                                                                              {"t", 1e12},
                                                                              {"ki", 0x1p10},
                                                                              {"mi", 0x1p20},
                                                                              {"gi", 0x1p30},
                                                                              {"ti", 0x1p40}}};
  std::string lower;
  for (const char c : unit) lower += static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
  for (const auto& [name, factor] : units)
    if (name == lower) return factor;
  return 0;
}

// A number and its unit.
std::optional<double> scaled(std::string_view text) {
  double number = 0;
  const char* end = text.data() + text.size();
  const auto [rest, error] = read_real(text.data() + (text.starts_with('+') ? 1 : 0), end, number);
  std::string_view unit(rest, static_cast<size_t>(end - rest));
  if (unit.starts_with(' ')) unit.remove_prefix(1);
  const double factor = factor_of(unit);
  if (error != std::errc() || factor == 0 || !std::isfinite(number)) return std::nullopt;
  return number * factor;
}

}  // namespace

std::optional<int64_t> count_of(std::string_view text) {
  const std::optional<std::string> plain = ungrouped(text);
  if (!plain) return std::nullopt;
  int64_t whole = 0;  // as it is, for a double has 53 bits
  const char *begin = plain->data() + (plain->starts_with('+') ? 1 : 0), *end = plain->data() + plain->size();
  if (const auto read = std::from_chars(begin, end, whole); read.ptr == end && begin != end) {
    return read.ec == std::errc() ? std::optional(whole) : std::nullopt;
  }
  const std::optional<double> number = scaled(*plain);
  if (!number || *number != std::floor(*number) || !(std::abs(*number) < kBeyond)) return std::nullopt;
  return static_cast<int64_t>(*number);
}

std::optional<double> number_of(std::string_view text) {
  const std::optional<std::string> plain = ungrouped(text);
  return plain ? scaled(*plain) : std::nullopt;
}

}  // namespace heddle
