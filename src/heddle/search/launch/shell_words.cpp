#include "heddle/search/launch/shell_words.h"

#include <algorithm>

#include "heddle/base/error.h"
#include "heddle/search/launch/shell_word_reader.h"

namespace heddle::search {

namespace {

constexpr size_t kMostBytes = size_t{1} << 20;

// The statements of a script, in order.
class Reader : ShellWordReader {
 public:
  Reader(std::string_view text, std::string_view name, const std::map<std::string, std::string>& given)
      : ShellWordReader(text, name) {
    for (const auto& [key, value] : given) variables_[key] = {value};
  }

  ShellText read() {
    while (at_ < text_.size()) statement();
    if (nested_ > 0) note(nest_line_, "a branch or loop that is never closed");
    return std::move(out_);
  }

 private:
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
      // The number of what is redirected, as in 2>&1, is no word of the command.
      if ((now() == '>' || now() == '<') && std::all_of(text_.begin() + static_cast<std::ptrdiff_t>(before),
                                                        text_.begin() + static_cast<std::ptrdiff_t>(at_), is_digit))
        continue;
      const bool first = command.words.empty();
      if (first && values.size() == 1 && control(values[0])) {
        if (values[0] != "then" && values[0] != "do" && values[0] != "else") continue;
        break;
      }
      if (first && values.size() == 1 && (values[0] == "{" || values[0] == "}")) continue;
      // Options of declare, such as -a, are no words of it.
      if (declares && values.size() == 1 && values[0].starts_with("-")) continue;
      for (std::string& value : values) command.words.push_back(std::move(value));
      command.end = at_;
    }
    if (at_ < text_.size() && (now() == ';' || now() == '&' || now() == '|' || now() == ')' || now() == '\n'))
      take();
    if (at_ == begin) take();
    if (command.words.empty()) return;
    if (command.words[0] == "source" || command.words[0] == ".") note(command.line, "a sourced file is not read");
    if (nested_ == 0) out_.commands.push_back(std::move(command));
  }

  int nested_ = 0, nest_line_ = 0;
};

}  // namespace

ShellText read_shell(std::string_view text, std::string_view name,
                     const std::map<std::string, std::string>& given) {
  if (text.size() > kMostBytes) config_error("{}: {} bytes, accepted: up to {}", name, text.size(), kMostBytes);
  if (text.find('\0') != std::string_view::npos) config_error("{}: holds a zero byte, accepted: a script", name);
  return Reader(text, name, given).read();
}

}  // namespace heddle::search
