#include "heddle/data/corpus/markup/text.h"

#include <algorithm>
#include <cctype>

namespace heddle::data::markup {

bool is_space(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\f' || c == '\v'; }
bool is_letter(char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0 || (c & 0x80) != 0; }
bool is_word(char c) { return is_letter(c) || std::isdigit(static_cast<unsigned char>(c)) != 0; }
bool has_letter(std::string_view text) { return std::any_of(text.begin(), text.end(), is_letter); }

std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    lines.push_back(line);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

size_t indent_of(std::string_view line) { return std::min(line.find_first_not_of(" \t"), line.size()); }

void Text::prose(std::string_view text) {
  text = trimmed(text);
  if (text.empty()) return;
  begin_block();
  for (size_t i = 0; i < text.size(); ++i) {
    if (!is_space(text[i])) {
      out_ += text[i];
      continue;
    }
    bool line_end = false;
    size_t after = i;
    for (; is_space(text[after]); ++after)
      line_end |= text[after] == '\n';  // trimmed: it ends before the text does
    const bool broken =
        line_end && i >= 2 && text[i - 1] == '-' && is_letter(text[i - 2]) && is_letter(text[after]);
    if (!broken) out_ += ' ';
    i = after - 1;
  }
  out_ += '\n';
}

void Text::verbatim(std::string_view text) {
  std::vector<std::string_view> lines = lines_of(text);
  while (!lines.empty() && trimmed(lines.front()).empty()) lines.erase(lines.begin());
  while (!lines.empty() && trimmed(lines.back()).empty()) lines.pop_back();
  if (lines.empty()) return;
  size_t indent = std::string_view::npos;
  for (const auto line : lines) {
    if (!trimmed(line).empty()) indent = std::min(indent, indent_of(line));
  }
  begin_block();
  for (auto line : lines) {
    line.remove_prefix(std::min(indent, line.size()));
    while (!line.empty() && is_space(line.back())) line.remove_suffix(1);
    out_ += line;
    out_ += '\n';
  }
}

}  // namespace heddle::data::markup
