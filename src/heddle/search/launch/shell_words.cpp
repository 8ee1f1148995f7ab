#include "heddle/search/launch/shell_words.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <optional>
#include <set>

#include "heddle/base/error.h"
#include "heddle/base/escaped.h"
#include "heddle/search/launch/shell_arithmetic.h"

namespace heddle::search {

namespace {

constexpr size_t kMostBytes = size_t{1} << 20, kMostExpanded = size_t{4} << 20, kMostWords = 1 << 16,
                 kMostNotes = 200, kMostSteps = size_t{1} << 24;
constexpr int kMostDepth = 32;

bool is_digit(char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; }
bool starts_name(char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0 || c == '_'; }
bool is_name(char c) { return starts_name(c) || is_digit(c); }
bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\r'; }

using Values = std::vector<std::string>;

// Reads the text once from front to back, expanding as it goes.
class Reader {
 public:
  Reader(std::string_view text, std::string_view name, const std::map<std::string, std::string>& given)
      : text_(text), name_(name) {
    for (const auto& [key, value] : given) variables_[key] = {value};
  }

  ShellText read() {
    while (at_ < text_.size()) statement();
    if (nested_ > 0) note(nest_line_, "a branch or loop that is never closed");
    return std::move(out_);
  }

 private:
  // A word under construction: the values it expands to, and whether it is one at all ("" is, nothing isn't).
  struct Word {
    Values done;
    std::string part;
    bool open = false;
  };

  void note(int line, const std::string& what) {
    if (out_.notes.size() < kMostNotes) out_.notes.push_back(fmt::format("line {}: {}", line, what));
  }

  [[noreturn]] void fail(const std::string& what) const { config_error("{}:{}: {}", name_, line_, what); }

  char now() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  char ahead(size_t n = 1) const { return at_ + n < text_.size() ? text_[at_ + n] : '\0'; }
  char take() {
    if (++steps_ > kMostSteps) fail("expands without end");
    if (text_[at_] == '\n') ++line_;
    return text_[at_++];
  }

  void spend(size_t bytes) {
    expanded_ += bytes;
    if (expanded_ > kMostExpanded) fail(fmt::format("expands to more than {} bytes", kMostExpanded));
  }

  bool skip_continuation() {
    if (now() != '\\') return false;
    const size_t more = ahead() == '\r' ? 2 : 1;
    if (ahead(more) != '\n' || (more == 1 && ahead() != '\n')) return false;
    for (size_t i = 0; i <= more; ++i) take();
    return true;
  }

  // Blanks, comments and continued lines; with `lines` also ends of lines.
  void skip(bool lines) {
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

  bool ends_word(char c) const {
    return at_ >= text_.size() || is_blank(c) || c == '\n' || c == ';' || c == '&' || c == '|' || c == '<' ||
           c == '>' || c == '(' || c == ')';
  }

  const Values* find(const std::string& name) const {
    const auto it = variables_.find(name);
    return it == variables_.end() ? nullptr : &it->second;
  }

  std::string joined(const Values& values) {
    std::string all;
    for (const std::string& v : values) {
      if (!all.empty()) all += ' ';
      all += v;
      spend(v.size());
    }
    return all;
  }

  // The text between an opening bracket that was just taken and the one that closes it, as it stands.
  std::string_view enclosed(char open, char close) {
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

  // What stands in `text` between double quotes, expanded to one string.
  std::string expanded(std::string_view text) {
    if (++depth_ > kMostDepth) fail("nested too deeply");
    Reader inner(text, name_, {});
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

  std::optional<int64_t> number_of(const std::string& name) {
    const Values* v = find(name);
    const std::string text = v == nullptr || v->empty() ? "" : v->front();
    if (text.empty()) return 0;
    int64_t n = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), n);
    if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
    return n;
  }

  void append(Word& w, const std::string& text) {
    spend(text.size());
    w.part += text;
    w.open = true;
  }

  // A value that was not quoted: cut at blanks.
  void append_split(Word& w, const Values& values) {
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

  void append_quoted(Word& w, const Values& values, bool apart) {
    w.open = w.open || !apart || !values.empty();
    if (!apart) return append(w, joined(values));
    for (size_t i = 0; i < values.size(); ++i) {
      if (i > 0) close(w);
      append(w, values[i]);
    }
  }

  void close(Word& w) {
    if (!w.open) return;
    if (++words_ > kMostWords) fail(fmt::format("more than {} words", kMostWords));
    w.done.push_back(std::move(w.part));
    w.part.clear();
    w.open = false;
  }

  // `text` is what stands in ${…}.
  void parameter(Word& w, std::string_view text, bool quoted) {
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

  static std::string_view unquoted(std::string_view text) {
    if (text.size() >= 2 && (text.front() == '"' || text.front() == '\'') && text.back() == text.front())
      return text.substr(1, text.size() - 2);
    return text;
  }

  void dollar(Word& w, bool quoted) {
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

  // One character or construct of a word.
  void piece(Word& w, bool quoted) {
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
      w.open = true;
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

  Values word() {
    Word w;
    while (!ends_word(now())) piece(w, false);
    close(w);
    return std::move(w.done);
  }

  // NAME=, NAME+= or NAME[…]= at this place; the name, or "".
  std::string assigned_name(bool& adds) const {
    if (!starts_name(now())) return "";
    size_t n = at_;
    while (n < text_.size() && is_name(text_[n])) ++n;
    const std::string name(text_.substr(at_, n - at_));
    adds = n + 1 < text_.size() && text_[n] == '+' && text_[n + 1] == '=';
    if (adds) return name;
    return n < text_.size() && text_[n] == '=' ? name : "";
  }

  void assign(const std::string& name, bool adds) {
    for (size_t i = 0; i < name.size() + (adds ? 2 : 1); ++i) take();
    Values values;
    const bool list = now() == '(';
    if (list) {
      take();
      const int line = line_;
      for (skip(true); now() != ')'; skip(true)) {
        if (at_ >= text_.size()) {
          line_ = line;
          fail("'(' is never closed");
        }
        const size_t before = at_;
        for (std::string& value : word()) values.push_back(std::move(value));
        if (at_ == before) take();
      }
      take();
    } else {
      Word w;
      while (!ends_word(now())) piece(w, false);
      // An assignment is not cut at blanks.
      std::string all = joined(w.done);
      if (!w.done.empty() && w.open) all += ' ';
      values = {all + w.part};
    }
    if (nested_ > 0) return;
    Values& into = variables_[name];
    if (!adds) {
      into = std::move(values);
    } else if (list) {
      for (std::string& value : values) into.push_back(std::move(value));
    } else {
      if (into.empty()) into.emplace_back();
      spend(into.front().size());
      into.front() += values.front();
    }
  }

  // The words that open and close what is not followed.
  bool control(const std::string& first) {
    static const std::vector<std::string> opens{"if", "for", "while", "until", "case", "select"},
        closes{"fi", "done", "esac"}, between{"then", "do", "else", "elif", "in"};
    const auto is = [&](const std::vector<std::string>& words) {
      return std::find(words.begin(), words.end(), first) != words.end();
    };
    if (is(opens)) {
      if (nested_++ == 0) {
        nest_line_ = line_;
        note(line_, fmt::format("what stands in this '{}' is not followed", first));
      }
      return true;
    }
    if (is(closes)) {
      nested_ = std::max(0, nested_ - 1);
      return true;
    }
    return is(between);
  }

  void rest_of_heredoc() {
    take(), take();
    if (now() == '-') take();
    skip(false);
    const Values end = word();
    while (at_ < text_.size() && now() != '\n') take();
    const std::string_view mark = end.empty() ? std::string_view() : std::string_view(end.front());
    while (at_ < text_.size()) {
      take();
      const size_t first = at_;
      while (at_ < text_.size() && now() != '\n') take();
      std::string_view line = text_.substr(first, at_ - first);
      while (!line.empty() && is_blank(line.front())) line.remove_prefix(1);
      while (!line.empty() && is_blank(line.back())) line.remove_suffix(1);
      if (line == mark) return;
    }
  }

  // Up to the end of a line, ';', '&', '|' or a parenthesis.
  void statement() {
    skip(true);
    if (at_ >= text_.size()) return;
    ShellCommand command;
    command.line = line_;
    const size_t begin = at_;
    while (at_ < text_.size()) {
      skip(false);
      bool adds = false;
      const bool declares =
          command.words.size() == 1 && (command.words[0] == "export" || command.words[0] == "declare" ||
                                        command.words[0] == "local" || command.words[0] == "readonly");
      if (command.words.empty() || declares) {
        if (const std::string name = assigned_name(adds); !name.empty()) {
          assign(name, adds);
          continue;
        }
      }
      const char c = now();
      if (at_ >= text_.size() || c == '\n' || c == ';' || c == '|' || c == ')') break;
      if (c == '&' && ahead() != '>') break;
      if (c == '<' && ahead() == '<') {
        rest_of_heredoc();
        continue;
      }
      if (c == '<' || c == '>' || c == '&') {
        while (now() == '<' || now() == '>' || now() == '&') take();
        skip(false);
        word();
        continue;
      }
      if (c == '(') {
        // A subshell, a function's parentheses, an arithmetic command: what stands inside is read as commands.
        take();
        if (now() == ')') take();
        break;
      }
      const size_t before = at_;
      Values values = word();
      if (at_ == before) take();
      const bool first = command.words.empty();
      if (first && values.size() == 1 && control(values[0])) {
        if (values[0] != "then" && values[0] != "do" && values[0] != "else") continue;
        break;
      }
      if (first && values.size() == 1 && (values[0] == "{" || values[0] == "}")) continue;
      // Options of declare, such as -a, are no words of it.
      if (declares && values.size() == 1 && values[0].starts_with("-")) continue;
      for (std::string& value : values) command.words.push_back(std::move(value));
    }
    if (at_ < text_.size() && (now() == ';' || now() == '&' || now() == '|' || now() == ')' || now() == '\n'))
      take();
    if (at_ == begin) take();
    if (command.words.empty()) return;
    if (command.words[0] == "source" || command.words[0] == ".") note(command.line, "a sourced file is not read");
    if (nested_ == 0) out_.commands.push_back(std::move(command));
  }

  std::string_view text_, name_;
  std::map<std::string, Values> variables_;
  std::set<std::string> unset_;  // names that were said to be
  ShellText out_;
  size_t at_ = 0, expanded_ = 0, words_ = 0, steps_ = 0;
  int line_ = 1, depth_ = 0, nested_ = 0, nest_line_ = 0;
};

}  // namespace

ShellText read_shell(std::string_view text, std::string_view name,
                     const std::map<std::string, std::string>& given) {
  if (text.size() > kMostBytes) config_error("{}: {} bytes, accepted: up to {}", name, text.size(), kMostBytes);
  if (text.find('\0') != std::string_view::npos) config_error("{}: holds a zero byte, accepted: a script", name);
  return Reader(text, name, given).read();
}

}  // namespace heddle::search
