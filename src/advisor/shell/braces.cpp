#include "advisor/shell/braces.h"

#include <algorithm>
#include <charconv>
#include <optional>

#include "advisor/shell/ends.h"

namespace heddle::advisor::shell {

namespace {

constexpr size_t kMostWords = 4096, kMostBytes = 1024;

// Returns the place behind what stands for itself here: a quote, $(…), ${…}, an escaped letter, or one letter.
size_t behind_piece(std::string_view word, size_t at) {
  const char c = word[at];
  size_t end = at + 1;
  if (c == '\\') {
    end = at + 2;
  } else if (c == '\'' || c == '"' || c == '`') {
    end = behind_quote(word, at + 1, c);
  } else if (c == '$' && at + 1 < word.size() && (word[at + 1] == '(' || word[at + 1] == '{')) {
    end = behind_close(word, at + 2, word[at + 1], word[at + 1] == '(' ? ')' : '}');
  }
  return std::min(end, word.size());
}

std::optional<int64_t> number(std::string_view text) {
  int64_t n = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), n);
  const bool whole = error == std::errc() && end == text.data() + text.size() && n > -1000000 && n < 1000000;
  return whole ? std::optional(n) : std::nullopt;
}

// "1..4" and "8..2..2".
std::vector<std::string> numbers(std::string_view text) {
  const size_t first = text.find(".."),
               second = first == std::string_view::npos ? first : text.find("..", first + 2);
  if (first == std::string_view::npos) return {};
  const std::optional<int64_t> from = number(text.substr(0, first)),
                               to = number(text.substr(
                                   first + 2, second == std::string_view::npos ? second : second - first - 2)),
                               by = second == std::string_view::npos ? 1 : number(text.substr(second + 2));
  if (!from || !to || !by) return {};
  const int64_t step = std::max<int64_t>(1, std::abs(*by)), count = std::abs(*to - *from) / step + 1;
  if (count > static_cast<int64_t>(kMostWords)) return {};
  // Zeros before a number make all as wide.
  const std::string_view a = text.substr(0, first);
  const bool wide = a.size() > 1 && a[0] == '0';
  std::vector<std::string> all;
  for (int64_t i = 0; i < count; ++i) {
    std::string one = std::to_string(*from + (*to < *from ? -i : i) * step);
    if (wide && one.size() < a.size()) one.insert(0, a.size() - one.size(), '0');
    all.push_back(std::move(one));
  }
  return all;
}

}  // namespace

std::vector<std::string> braced(std::string_view word) {
  for (size_t open = 0; open < word.size() && word.size() <= kMostBytes;) {
    if (word[open] != '{') {
      open = behind_piece(word, open);
      continue;
    }
    std::vector<size_t> commas;
    size_t at = open + 1, depth = 1;
    while (at < word.size() && depth > 0) {
      if (word[at] == '{') ++depth;
      if (word[at] == '}') --depth;
      if (word[at] == ',' && depth == 1) commas.push_back(at);
      at = behind_piece(word, at);
    }
    if (depth > 0) break;
    const std::string_view inside = word.substr(open + 1, at - open - 2);
    std::vector<std::string> parts = commas.empty() ? numbers(inside) : std::vector<std::string>();
    if (!commas.empty()) {
      commas.push_back(at - 1);
      size_t from = open + 1;
      for (const size_t comma : commas) {
        if (parts.size() <= kMostWords)
          for (std::string& part : braced(word.substr(from, comma - from))) parts.push_back(std::move(part));
        from = comma + 1;
      }
    }
    if (parts.empty()) {
      ++open;
      continue;
    }
    if (parts.size() > kMostWords) break;
    const std::vector<std::string> rest = braced(word.substr(at));
    if (parts.size() * rest.size() > kMostWords) break;
    std::vector<std::string> all;
    for (const std::string& part : parts)
      for (const std::string& end : rest) all.push_back(std::string(word.substr(0, open)) + part + end);
    return all;
  }
  return {std::string(word)};
}

}  // namespace heddle::advisor::shell
