// The words of a shell's language, read from front to back and expanded as they go: quotes, ${NAME:-default},
// $((arithmetic)), line continuations. What stands for a command's output is left out and said.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "heddle/search/launch/shell_words.h"

namespace heddle::search {

/// Reads words at its place in a text; whoever reads statements derives from it. What it spends is bounded: bytes
/// that words expand to, words, depth, steps.
class ShellWordReader {
 protected:
  using Values = std::vector<std::string>;
  /// A word under construction: the values it expands to, and whether it is one at all ("" is, nothing isn't).
  struct Word {
    Values done;
    std::string part;
    bool open = false;
  };

  ShellWordReader(std::string_view text, std::string_view name) : text_(text), name_(name) {}

  void note(int line, const std::string& what);
  [[noreturn]] void fail(const std::string& what) const;

  char now() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  char ahead(size_t n = 1) const { return at_ + n < text_.size() ? text_[at_ + n] : '\0'; }
  char take();
  void spend(size_t bytes);
  bool skip_continuation();
  /// Blanks, comments and continued lines; with `lines` also ends of lines.
  void skip(bool lines);
  bool ends_word(char c) const;

  /// One character or construct of a word; all of one.
  void piece(Word& w, bool quoted);
  Values word();
  std::string joined(const Values& values);

  static bool is_digit(char c);
  static bool starts_name(char c);
  static bool is_name(char c) { return starts_name(c) || is_digit(c); }
  static bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\r'; }

  std::string_view text_, name_;
  std::map<std::string, Values> variables_;
  ShellText out_;
  size_t at_ = 0;
  int line_ = 1;

 private:
  const Values* find(const std::string& name) const;
  /// The text between an opening bracket that was just taken and the one that closes it, as it stands.
  std::string_view enclosed(char open, char close);
  /// What stands in `text` between double quotes, expanded to one string.
  std::string expanded(std::string_view text);
  std::optional<int64_t> number_of(const std::string& name);

  void append(Word& w, const std::string& text);
  /// A value that was not quoted: cut at blanks.
  void append_split(Word& w, const Values& values);
  void append_quoted(Word& w, const Values& values, bool apart);
  void close(Word& w);

  /// `text` is what stands in ${…}.
  void parameter(Word& w, std::string_view text, bool quoted);
  void dollar(Word& w, bool quoted);

  std::set<std::string> unset_;  // names that were said to be
  size_t expanded_ = 0, words_ = 0, steps_ = 0;
  int depth_ = 0;
};

}  // namespace heddle::search
