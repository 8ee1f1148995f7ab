#include "advisor/shell/pattern.h"

namespace heddle::advisor::shell {

namespace {

constexpr size_t kMostPatternSteps = size_t{1} << 22;

// One element of a pattern at `at`, against a character; `at` moves behind it.
bool element_matches(std::string_view pattern, size_t& at, char c) {
  const char p = pattern[at++];
  if (p == '?') return true;
  if (p == '\\' && at < pattern.size()) return pattern[at++] == c;
  if (p != '[') return p == c;
  const size_t close = pattern.find(']', at + 1);
  if (close == std::string_view::npos) return p == c;
  size_t i = at;
  const bool negated = pattern[i] == '!' || pattern[i] == '^';
  if (negated) ++i;
  bool found = false;
  for (; i < close; ++i) {
    if (i + 2 < close && pattern[i + 1] == '-') {
      found |= pattern[i] <= c && c <= pattern[i + 2];
      i += 2;
    } else {
      found |= pattern[i] == c;
    }
  }
  at = close + 1;
  return found != negated;
}

}  // namespace

std::optional<bool> matches(std::string_view pattern, std::string_view text) {
  if ((pattern.size() + 1) * (text.size() + 1) > kMostPatternSteps) return std::nullopt;
  size_t p = 0, t = 0, star = std::string_view::npos, from = 0;
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = ++p, from = t;
      continue;
    }
    size_t next = p;
    if (p < pattern.size() && element_matches(pattern, next, text[t])) {
      p = next, ++t;
    } else if (star != std::string_view::npos) {
      p = star, t = ++from;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

std::optional<std::string> without(std::string_view text, std::string_view op, std::string_view pattern) {
  if ((pattern.size() + 1) * (text.size() + 1) > kMostPatternSteps / (text.size() + 1)) return std::nullopt;
  const bool front = op.front() == '#', longest = op.size() == 2;
  for (size_t i = 0; i <= text.size(); ++i) {
    const size_t length = longest ? text.size() - i : i;
    const std::string_view part = front ? text.substr(0, length) : text.substr(text.size() - length);
    if (!*matches(pattern, part)) continue;
    return std::string(front ? text.substr(length) : text.substr(0, text.size() - length));
  }
  return std::string(text);
}

std::optional<std::string> replaced(std::string_view text, bool all, std::string_view pattern,
                                    std::string_view with) {
  const size_t n = text.size() + 1;
  if (pattern.empty()) return std::string(text);
  if (n * n > kMostPatternSteps / (n * (pattern.size() + 1))) return std::nullopt;
  std::string out;
  for (size_t at = 0; at < text.size();) {
    size_t length = text.size() - at;
    while (length > 0 && !*matches(pattern, text.substr(at, length))) --length;
    if (length == 0) {
      out += text[at++];
      continue;
    }
    out += with;
    at += length;
    if (!all) return out += text.substr(at);
  }
  return out;
}

}  // namespace heddle::advisor::shell
