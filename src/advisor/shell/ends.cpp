#include "advisor/shell/ends.h"

#include <algorithm>
#include <cctype>
#include <utility>
#include <vector>

namespace heddle::advisor::shell {

namespace {

constexpr int kMostBrackets = 64;
thread_local int brackets = 0;

}  // namespace

bool starts_name(char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0 || c == '_'; }
bool is_name(char c) { return starts_name(c) || std::isdigit(static_cast<unsigned char>(c)) != 0; }

size_t behind_quote(std::string_view text, size_t at, char quote) {
  while (at < text.size()) {
    const char c = text[at];
    if (c == quote) return at + 1;
    if (quote == '\'') {
      ++at;
    } else if (c == '\\') {
      at += 2;
    } else if (quote == '"' && c == '$' && at + 1 < text.size() && (text[at + 1] == '(' || text[at + 1] == '{')) {
      const char open = text[at + 1];
      at = behind_close(text, at + 2, open, open == '(' ? ')' : '}');
      if (at == std::string_view::npos) return at;
    } else if (quote == '"' && c == '`') {
      at = behind_quote(text, at + 1, '`');
      if (at == std::string_view::npos) return at;
    } else {
      ++at;
    }
  }
  return std::string_view::npos;
}

size_t behind_heredoc(std::string_view text, size_t at, std::string_view mark, bool tabs, std::string_view* body) {
  const size_t first = at;
  while (at < text.size()) {
    size_t end = text.find('\n', at);
    if (end == std::string_view::npos) end = text.size();
    std::string_view line = text.substr(at, end - at);
    if (line.ends_with('\r')) line.remove_suffix(1);
    while (tabs && line.starts_with('\t')) line.remove_prefix(1);
    if (line == mark) {
      if (body != nullptr) *body = text.substr(first, at - first);
      return end;
    }
    at = std::min(end + 1, text.size());
  }
  if (body != nullptr) *body = text.substr(first);
  return text.size();
}

std::string heredoc_mark(std::string_view word, bool& quoted) {
  std::string mark;
  for (const char c : word) {
    if (c == '\'' || c == '"' || c == '\\') {
      quoted = true;
    } else {
      mark += c;
    }
  }
  return mark;
}

size_t behind_plain_word(std::string_view text, size_t at) {
  while (at < text.size() && !is_blank(text[at]) && text[at] != '\n' && text[at] != ';' && text[at] != '&' &&
         text[at] != '|' && text[at] != ')' && text[at] != '<' && text[at] != '>')
    ++at;
  return at;
}

size_t behind_close(std::string_view text, size_t at, char open, char close) {
  struct Count {
    Count() { ++brackets; }
    ~Count() { --brackets; }
  } count;
  if (brackets > kMostBrackets) return std::string_view::npos;
  std::vector<std::pair<std::string, bool>> heredocs;
  for (int depth = 1; at < text.size();) {
    const char c = text[at++];
    if (c == '\\') {
      ++at;
    } else if (c == '\'' || c == '"' || c == '`') {
      // An apostrophe inside "${X:-it's}" closes nothing; whoever leaves one open meant the letter.
      const size_t end = behind_quote(text, at, c);
      if (end == std::string_view::npos) {
        if (close == '}') continue;
        return end;
      }
      at = end;
    } else if (c == '#' && close == ')' && at >= 2 && (is_blank(text[at - 2]) || text[at - 2] == '\n')) {
      while (at < text.size() && text[at] != '\n') ++at;
    } else if (c == '<' && close == ')' && text.substr(at).starts_with("<") && !text.substr(at).starts_with("<<")) {
      ++at;
      const bool tabs = text.substr(at).starts_with("-");
      if (tabs) ++at;
      while (at < text.size() && is_blank(text[at])) ++at;
      const size_t end = behind_plain_word(text, at);
      bool quoted = false;
      const std::string mark = heredoc_mark(text.substr(at, end - at), quoted);
      if (!mark.empty() && std::isdigit(static_cast<unsigned char>(mark[0])) == 0)
        heredocs.emplace_back(mark, tabs);
      at = end;
    } else if (c == '\n' && !heredocs.empty()) {
      for (const auto& [mark, tabs] : heredocs) at = behind_heredoc(text, at, mark, tabs, nullptr);
      heredocs.clear();
    } else if (c == open) {
      ++depth;
    } else if (c == close && --depth == 0) {
      return at;
    }
  }
  return std::string_view::npos;
}

}  // namespace heddle::advisor::shell
