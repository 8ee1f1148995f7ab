// Small questions about text that many ask.
#pragma once

#include <algorithm>
#include <initializer_list>
#include <string_view>

namespace heddle {

/// The text without the blanks at both ends.
constexpr std::string_view trimmed(std::string_view text, std::string_view blanks = " \t\n\r\f\v") {
  const size_t first = text.find_first_not_of(blanks);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(blanks) - first + 1);
}

constexpr bool is_one_of(std::string_view word, std::initializer_list<std::string_view> words) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

/// True if two names differ in nothing but case, hyphens, underscores, points and blanks.
constexpr bool same_name(std::string_view a, std::string_view b) {
  const auto is_mark = [](char c) { return c == '-' || c == '_' || c == '.' || c == ' '; };
  const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; };
  while (true) {
    while (!a.empty() && is_mark(a.front())) a.remove_prefix(1);
    while (!b.empty() && is_mark(b.front())) b.remove_prefix(1);
    if (a.empty() || b.empty()) return a.empty() && b.empty();
    if (lower(a.front()) != lower(b.front())) return false;
    a.remove_prefix(1);
    b.remove_prefix(1);
  }
}

}  // namespace heddle
