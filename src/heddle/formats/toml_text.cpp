#include "heddle/formats/toml_text.h"

#include <algorithm>

#include "heddle/base/count_text.h"
#include "heddle/base/error.h"
#include "heddle/base/escaped.h"
#include "heddle/base/text.h"
#include "heddle/base/utf8.h"

namespace heddle::formats {

namespace {

constexpr int kMostKeyDots = 32;
constexpr size_t kMostShown = 200;

class Scanner {
 public:
  Scanner(std::string_view text, const std::string& place) : text_(text), place_(place) {}

  void scan() {
    if (text_.starts_with("\xef\xbb\xbf")) at_ = 3;
    while (at_ < text_.size()) step();
  }

 private:
  enum class In : uint8_t { plain, comment, text };

  [[noreturn]] void refuse(const std::string& found) const {
    config_error("{}:{}:{}: not TOML: {}", place_, line_, at_ - line_start_ + 1, found);
  }

  bool next_is(std::string_view what) const { return text_.substr(at_).starts_with(what); }

  void step() {
    const Letter letter = first_letter(text_.substr(at_));
    if (!letter.valid) refuse(fmt::format("found the byte '{}', UTF-8 is expected", escaped(text_.substr(at_, 1))));
    if (letter.code == '\n') return end_line();
    const bool end_of_line = letter.code == '\r' && at_ + 1 < text_.size() && text_[at_ + 1] == '\n';
    if (letter.code != '\t' && !end_of_line && (letter.code < 0x20 || letter.code == 0x7f)) {
      refuse(fmt::format("found the control character '{}'{}", escaped(text_.substr(at_, 1)),
                         in_ == In::text ? ", in a string it is written \\uXXXX" : ""));
    }
    if (in_ == In::plain) {
      if (letter.code >= 0x80) {
        refuse(
            fmt::format("found '{}' outside of quotes; keys there are of the letters A-Z a-z 0-9 _ -, others go "
                        "into double quotes",
                        escaped(text_.substr(at_, letter.bytes))));
      }
      return step_plain();
    }
    if (in_ == In::text) {
      if (next_is(quotes_)) {
        at_ += quotes_.size();
        while (quotes_.size() == 3 && at_ < text_.size() && text_[at_] == quotes_[0])
          ++at_;  // up to two of its own
        in_ = In::plain;
        return;
      }
      if (letter.code == '\\' && quotes_[0] == '"' && at_ + 1 < text_.size() && text_[at_ + 1] != '\n') ++at_;
    }
    at_ += first_letter(text_.substr(at_)).bytes;
  }

  void step_plain() {
    const char c = text_[at_];
    if (c == '#') {
      in_ = In::comment;
    } else if (c == '"' || c == '\'') {
      const std::string three(3, c);
      quotes_ = next_is(three) ? three : std::string(1, c);
      in_ = In::text;
      at_ += quotes_.size();
      return;
    } else if (c == '.') {
      if (++dots_ > kMostKeyDots) refuse(fmt::format("a key of more than {} parts", kMostKeyDots));
    } else if (c == '=' || c == ',' || c == '{') {
      dots_ = 0;
    }
    ++at_;
  }

  void end_line() {
    ++at_;
    ++line_;
    line_start_ = at_;
    dots_ = 0;
    if (in_ == In::comment || (in_ == In::text && quotes_.size() == 1)) in_ = In::plain;
  }

  std::string_view text_;
  const std::string& place_;
  size_t at_ = 0, line_ = 1, line_start_ = 0;
  In in_ = In::plain;
  std::string quotes_;
  int dots_ = 0;
};

// The setting on a line of the text, as far as it can be told of a text that is no TOML.
struct Assignment {
  std::string key, value;
};

Assignment assignment_on(std::string_view text, size_t line) {
  std::string section;
  for (size_t number = 1; !text.empty(); ++number) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view now = trimmed(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    if (number == line) {
      const size_t equals = now.find('=');
      if (equals == std::string_view::npos || now.starts_with('[')) return {};
      const std::string_view key = trimmed(now.substr(0, equals)), value = trimmed(now.substr(equals + 1));
      return {section.empty() ? std::string(key) : fmt::format("{}.{}", section, key), std::string(value)};
    }
    if (now.starts_with('[') && now.find(']') != std::string_view::npos)
      section = trimmed(now.substr(1, now.find(']') - 1));
  }
  return {};
}

// The likely meaning of a value that TOML does not know; "" where that is not plain.
std::string meant(std::string_view value) {
  const size_t comment = value.find('#');
  if (comment != std::string_view::npos && value.find_first_of("\"'") == std::string_view::npos)
    value = trimmed(value.substr(0, comment));
  if (value.empty()) return "a value is missing";
  if (is_one_of(value, {"True", "TRUE", "False", "FALSE"}))
    return fmt::format("TOML writes {}", same_name(value, "true") ? "true" : "false");
  if (is_one_of(value, {"None", "null", "nil", "none"})) return "TOML has no empty value; leave the key out";
  if (value.front() == '"' || value.front() == '\'') {
    return value.size() < 2 || value.back() != value.front() ? "the quotes are not closed" : "";
  }
  const bool word =
      value.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./ ") ==
      std::string_view::npos;
  const bool letter = (value.front() >= 'a' && value.front() <= 'z') ||
                      (value.front() >= 'A' && value.front() <= 'Z') || value.front() == '/' ||
                      value.front() == '.';
  if (word && letter) return fmt::format("a text needs quotes, \"{}\"", escaped(value, kMostShown));
  const bool digit = value.front() >= '0' && value.front() <= '9';
  const bool unit = (value.back() >= 'a' && value.back() <= 'z') || (value.back() >= 'A' && value.back() <= 'Z');
  if (digit && unit && count_of(value))
    return fmt::format("a number with a unit needs quotes, \"{}\"", escaped(value, kMostShown));
  return "";
}

}  // namespace

void check_toml(std::string_view text, const std::string& place) { Scanner(text, place).scan(); }

std::string toml_complaint(std::string_view description, std::string_view text, size_t line) {
  constexpr std::string_view theirs = "Error while parsing ";
  if (description.starts_with(theirs)) description.remove_prefix(theirs.size());
  const Assignment at = assignment_on(text, line);
  if (at.key.empty()) return fmt::format("not TOML: {}", escaped(description, kMostShown));
  const std::string place =
      fmt::format("not TOML: {} = {}", escaped(at.key, kMostShown), escaped(at.value, kMostShown));
  if (const std::string better = meant(at.value); !better.empty()) return fmt::format("{}: {}", place, better);
  return fmt::format("{}: {}", place, escaped(description, kMostShown));
}

}  // namespace heddle::formats
