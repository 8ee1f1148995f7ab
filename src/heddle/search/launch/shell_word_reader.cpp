#include "heddle/search/launch/shell_word_reader.h"

#include <cctype>
#include <charconv>

#include "heddle/base/error.h"
#include "heddle/base/escaped.h"
#include "heddle/search/launch/shell_arithmetic.h"

namespace heddle::search {

namespace {

constexpr size_t kMostExpanded = size_t{4} << 20, kMostWords = 1 << 16, kMostNotes = 200,
                 kMostSteps = size_t{1} << 24;
constexpr int kMostDepth = 32;

}  // namespace

bool ShellWordReader::is_digit(char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; }
bool ShellWordReader::starts_name(char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0 || c == '_'; }

void ShellWordReader::note(int line, const std::string& what) {
  if (out_.notes.size() < kMostNotes) out_.notes.push_back(fmt::format("line {}: {}", line, what));
}

void ShellWordReader::fail(const std::string& what) const { config_error("{}:{}: {}", name_, line_, what); }

char ShellWordReader::take() {
  if (++steps_ > kMostSteps) fail("expands without end");
  if (text_[at_] == '\n') ++line_;
  return text_[at_++];
}

void ShellWordReader::spend(size_t bytes) {
  expanded_ += bytes;
  if (expanded_ > kMostExpanded) fail(fmt::format("expands to more than {} bytes", kMostExpanded));
}

bool ShellWordReader::skip_continuation() {
  if (now() != '\\') return false;
  const size_t more = ahead() == '\r' ? 2 : 1;
  if (ahead(more) != '\n' || (more == 1 && ahead() != '\n')) return false;
  for (size_t i = 0; i <= more; ++i) take();
  return true;
}

void ShellWordReader::skip(bool lines) {
  for (;;) {
    if (is_blank(now()) && at_ < text_.size()) {
      take();
    } else if (lines && now() == '\n') {
      take();
    } else if (now() == '#' && at_ < text_.size()) {
      while (at_ < text_.size() && now() != '\n') take();
    } else if (!skip_continuation()) {
      return;
    }
  }
}

bool ShellWordReader::ends_word(char c) const {
  return at_ >= text_.size() || is_blank(c) || c == '\n' || c == ';' || c == '&' || c == '|' || c == '<' ||
         c == '>' || c == '(' || c == ')';
}

const ShellWordReader::Values* ShellWordReader::find(const std::string& name) const {
  const auto it = variables_.find(name);
  return it == variables_.end() ? nullptr : &it->second;
}

std::string ShellWordReader::joined(const Values& values) {
  std::string all;
  for (const std::string& v : values) {
    if (!all.empty()) all += ' ';
    all += v;
    spend(v.size());
  }
  return all;
}

std::string_view ShellWordReader::enclosed(char open, char close) {
  const size_t first = at_;
  const int line = line_;
  char quote = '\0';
  for (int depth = 1; at_ < text_.size();) {
    const char c = take();
    if (c == '\\' && at_ < text_.size()) {
      take();
    } else if (quote != '\0') {
      if (c == quote) quote = '\0';
    } else if (c == '\'' || c == '"') {
      quote = c;
    } else if (c == open) {
      ++depth;
    } else if (c == close && --depth == 0) {
      return text_.substr(first, at_ - 1 - first);
    }
  }
  line_ = line;
  fail(fmt::format("'{}' is never closed", open));
}

std::string ShellWordReader::expanded(std::string_view text) {
  if (++depth_ > kMostDepth) fail("nested too deeply");
  ShellWordReader inner(text, name_);
  inner.variables_.swap(variables_);
  inner.line_ = line_, inner.depth_ = depth_, inner.expanded_ = expanded_, inner.steps_ = steps_;
  Word w;
  while (inner.at_ < inner.text_.size()) inner.piece(w, true);
  inner.variables_.swap(variables_);
  expanded_ = inner.expanded_, steps_ = inner.steps_;
  for (std::string& n : inner.out_.notes) out_.notes.push_back(std::move(n));
  --depth_;
  std::string all = joined(w.done);
  if (!w.done.empty() && !w.part.empty()) all += ' ';
  return all + w.part;
}

std::optional<int64_t> ShellWordReader::number_of(const std::string& name) {
  const Values* v = find(name);
  const std::string text = v == nullptr || v->empty() ? "" : v->front();
  if (text.empty()) return 0;
  int64_t n = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), n);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return n;
}

void ShellWordReader::append(Word& w, const std::string& text) {
  spend(text.size());
  w.part += text;
  w.open = true;
}

void ShellWordReader::append_split(Word& w, const Values& values) {
  bool first = true;
  for (const std::string& value : values) {
    if (!first) close(w);
    first = false;
    for (const char c : value) {
      if (is_blank(c) || c == '\n') {
        close(w);
      } else {
        append(w, std::string(1, c));
      }
    }
  }
}

void ShellWordReader::append_quoted(Word& w, const Values& values, bool apart) {
  w.open = w.open || !apart || !values.empty();
  if (!apart) return append(w, joined(values));
  for (size_t i = 0; i < values.size(); ++i) {
    if (i > 0) close(w);
    append(w, values[i]);
  }
}

void ShellWordReader::close(Word& w) {
  if (!w.open) return;
  if (++words_ > kMostWords) fail(fmt::format("more than {} words", kMostWords));
  w.done.push_back(std::move(w.part));
  w.part.clear();
  w.open = false;
}

namespace {

std::string_view unquoted(std::string_view text) {
  if (text.size() >= 2 && (text.front() == '"' || text.front() == '\'') && text.back() == text.front())
    return text.substr(1, text.size() - 2);
  return text;
}

}  // namespace

void ShellWordReader::parameter(Word& w, std::string_view text, bool quoted) {
  std::string_view rest = text;
  size_t n = 0;
  while (n < rest.size() && is_name(rest[n])) ++n;
  if (n == 0 && !rest.empty() && (rest[0] == '@' || rest[0] == '*' || rest[0] == '#')) n = 1;
  std::string name(rest.substr(0, n));
  rest.remove_prefix(n);
  bool apart = name == "@";
  Values values;
  const Values* found = name.empty() ? nullptr : find(name);
  if (found != nullptr) values = *found;
  if (rest.starts_with("[")) {
    const size_t end = rest.find(']');
    const std::string index(rest.substr(1, end == std::string_view::npos ? end : end - 1));
    rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
    if (index == "@") {
      apart = true;
    } else if (index != "*") {
      const std::optional<int64_t> at =
          shell_arithmetic(index, [this](const std::string& v) { return number_of(v); });
      if (at && *at >= 0 && static_cast<size_t>(*at) < values.size()) {
        values = {values[static_cast<size_t>(*at)]};
      } else {
        values.clear();
      }
    }
  } else if (values.size() > 1 && !apart) {
    values.resize(1);
  }
  const bool colon = rest.starts_with(":");
  const std::string_view op = colon ? rest.substr(1) : rest;
  const bool unset = found == nullptr || (colon && (values.empty() || values.front().empty()));
  if (!op.empty() && (op[0] == '-' || op[0] == '=')) {
    if (unset) values = {expanded(unquoted(op.substr(1)))};
    if (unset && op[0] == '=') variables_[name] = values;
  } else if (!op.empty() && op[0] == '+') {
    values = unset ? Values{} : Values{expanded(unquoted(op.substr(1)))};
  } else if (!op.empty() && op[0] == '?') {
    if (unset) note(line_, fmt::format("{} is not set", name.substr(0, 40)));
  } else if (!rest.empty() || name.empty()) {
    note(line_, fmt::format("${{{}}} is not followed", shown(text)));
    values.clear();
  } else if (found == nullptr && !is_digit(name[0]) && name != "@" && name != "*") {
    if (unset_.insert(name).second) note(line_, fmt::format("{} is not set", name.substr(0, 40)));
  }
  quoted ? append_quoted(w, values, apart) : append_split(w, values);
}

void ShellWordReader::dollar(Word& w, bool quoted) {
  take();
  if (now() == '(' && ahead() == '(') {
    take(), take();
    const std::string text(enclosed('(', ')'));
    if (now() != ')') fail("$(( is never closed");
    take();
    const std::optional<int64_t> value =
        shell_arithmetic(expanded(text), [this](const std::string& v) { return number_of(v); });
    if (!value) fail(fmt::format("$(({})) is no arithmetic that can be read", shown(text)));
    append(w, std::to_string(*value));
  } else if (now() == '(') {
    take();
    enclosed('(', ')');
    note(line_, "a command's output is not known");
    w.open = w.open || quoted;
  } else if (now() == '{') {
    take();
    parameter(w, enclosed('{', '}'), quoted);
  } else if (starts_name(now()) || is_digit(now()) || now() == '@' || now() == '*' || now() == '#') {
    const size_t first = at_;
    if (starts_name(now())) {
      while (is_name(now())) take();
    } else {
      take();
    }
    parameter(w, text_.substr(first, at_ - first), quoted);
  } else {
    append(w, "$");
  }
}

void ShellWordReader::piece(Word& w, bool quoted) {
  if (skip_continuation()) return;
  const char c = now();
  if (c == '$') return dollar(w, quoted);
  if (c == '`') {
    take();
    while (at_ < text_.size() && take() != '`') {
    }
    note(line_, "a command's output is not known");
    return;
  }
  if (c == '\\') {
    take();
    if (at_ >= text_.size()) return;
    const char next = take();
    // Between double quotes a backslash stands for itself before most characters.
    if (quoted && next != '"' && next != '\\' && next != '$' && next != '`') append(w, "\\");
    return append(w, std::string(1, next));
  }
  if (!quoted && c == '\'') {
    const int line = line_;
    take();
    w.open = true;
    while (now() != '\'') {
      if (at_ >= text_.size()) {
        line_ = line;
        fail("a quote is opened and never closed");
      }
      append(w, std::string(1, take()));
    }
    take();
    return;
  }
  if (!quoted && c == '"') {
    const int line = line_;
    take();
    // "" is a word; "$@" and "${list[@]}" of nothing are none.
    w.open = w.open || now() == '"';
    while (now() != '"') {
      if (at_ >= text_.size()) {
        line_ = line;
        fail("a quote is opened and never closed");
      }
      piece(w, true);
    }
    take();
    return;
  }
  append(w, std::string(1, take()));
}

ShellWordReader::Values ShellWordReader::word() {
  Word w;
  while (!ends_word(now())) piece(w, false);
  close(w);
  return std::move(w.done);
}

}  // namespace heddle::search
