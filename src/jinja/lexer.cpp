// Text to tokens: data between tags, and what tags hold.
#include <algorithm>

#include "heddle/base/error.h"
#include "heddle/base/escaped.h"
#include "heddle/base/utf8.h"
#include "jinja/syntax.h"

namespace heddle::jinja {

namespace {

bool is_blank(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_name(char c) { return is_digit(c) || c == '_' || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

std::string normalised(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\r' && i + 1 < text.size() && text[i + 1] == '\n') continue;
    out += text[i] == '\r' ? '\n' : text[i];
  }
  if (out.ends_with('\n')) out.pop_back();  // as Jinja leaves out the last line end
  return out;
}

class Lexer {
 public:
  Lexer(std::string text, const std::string& place) : text_(std::move(text)), place_(place) {}

  std::vector<Token> all() {
    while (at_ < text_.size()) data();
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void fail(const std::string& what) const { config_error("{}:{}: {}", place_, line_, what); }

  bool here(std::string_view word) const { return text_.compare(at_, word.size(), word) == 0; }
  char peek(size_t ahead = 0) const { return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0'; }
  void move_to(size_t to) {
    line_ += static_cast<int>(
        std::count(text_.begin() + static_cast<ptrdiff_t>(at_), text_.begin() + static_cast<ptrdiff_t>(to), '\n'));
    at_ = to;
  }
  void add(Token::Kind kind, std::string text = "") { tokens_.push_back({kind, std::move(text), line_}); }

  size_t next_tag() const {
    for (size_t at = text_.find('{', at_); at != std::string::npos; at = text_.find('{', at + 1)) {
      const char c = at + 1 < text_.size() ? text_[at + 1] : '\0';
      if (c == '{' || c == '%' || c == '#') return at;
    }
    return text_.size();
  }

  // Data up to a tag, as the tag's signs leave it, and the tag.
  void data() {
    const size_t tag = next_tag();
    std::string data = text_.substr(at_, tag - at_);
    const char kind = tag < text_.size() ? text_[tag + 1] : '\0',
               sign = tag + 2 < text_.size() ? text_[tag + 2] : '\0';
    if (kind != '\0') trim_end(data, kind, sign);
    if (!data.empty()) add(Token::Kind::data, std::move(data));
    move_to(tag);
    if (kind == '\0') return;
    at_ += 2;
    const bool signed_tag = sign == '-' || (sign == '+' && kind != '{');
    if (signed_tag) ++at_;
    if (kind == '#') return comment();
    if (kind == '%' && raw()) return;
    add(kind == '{' ? Token::Kind::begin_print : Token::Kind::begin_block);
    inside(kind == '{' ? "}}" : "%}", kind == '{');
  }

  void trim_end(std::string& data, char kind, char sign) const {
    if (sign == '-') {
      while (!data.empty() && is_blank(data.back())) data.pop_back();
      return;
    }
    if (kind == '{' || sign == '+') return;
    const size_t line = data.rfind('\n') == std::string::npos ? 0 : data.rfind('\n') + 1;
    if (line == 0 && !line_starts_) return;
    if (data.find_first_not_of(" \t", line) == std::string::npos) data.resize(line);
  }

  // Goes on behind a tag that ends with `sign`.
  void behind(char sign, bool trims) {
    const size_t before = at_;
    size_t to = at_;
    if (sign == '-') {
      while (to < text_.size() && is_blank(text_[to])) ++to;
    } else if (trims && sign != '+' && peek() == '\n') {
      ++to;
    }
    move_to(to);
    line_starts_ = at_ > before && text_[at_ - 1] == '\n';
  }

  void comment() {
    const size_t end = text_.find("#}", at_);
    if (end == std::string::npos) fail("a comment has no end, #} is expected");
    const char sign = end > at_ ? text_[end - 1] : '\0';
    move_to(end + 2);
    behind(sign == '-' || sign == '+' ? sign : '\0', true);
  }

  // {% raw %} … {% endraw %}
  bool raw() {
    const auto tag_at = [&](size_t at, std::string_view word, size_t& end, char& sign) {
      while (at < text_.size() && is_blank(text_[at])) ++at;
      if (text_.compare(at, word.size(), word) != 0) return false;
      at += word.size();
      while (at < text_.size() && is_blank(text_[at])) ++at;
      sign = at < text_.size() && (text_[at] == '-' || text_[at] == '+') ? text_[at++] : '\0';
      end = at + 2;
      return text_.compare(at, 2, "%}") == 0;
    };
    size_t end = 0;
    char sign = '\0';
    if (!tag_at(at_, "raw", end, sign)) return false;
    move_to(end);
    behind(sign, true);
    for (size_t at = text_.find("{%", at_); at != std::string::npos; at = text_.find("{%", at + 2)) {
      const char first = at + 2 < text_.size() ? text_[at + 2] : '\0';
      if (!tag_at(at + (first == '-' || first == '+' ? 3 : 2), "endraw", end, sign)) continue;
      std::string data = text_.substr(at_, at - at_);
      trim_end(data, '%', first);
      if (!data.empty()) add(Token::Kind::data, std::move(data));
      move_to(end);
      behind(sign, true);
      return true;
    }
    fail("raw has no end, {% endraw %} is expected");
  }

  void inside(std::string_view end, bool print) {
    int open = 0;
    while (true) {
      while (at_ < text_.size() && is_blank(text_[at_])) move_to(at_ + 1);
      if (at_ >= text_.size()) fail(fmt::format("a tag has no end, {} is expected", end));
      if (open == 0) {
        const bool with_sign = (peek() == '-' || (peek() == '+' && !print)) && text_.compare(at_ + 1, 2, end) == 0;
        if (with_sign || here(end)) {
          const char sign = with_sign ? peek() : '\0';
          add(print ? Token::Kind::end_print : Token::Kind::end_block);
          at_ += with_sign ? 3 : 2;
          return behind(sign, !print);
        }
      }
      const char c = peek();
      if (c == '(' || c == '[' || c == '{') ++open;
      if (c == ')' || c == ']' || c == '}') open = std::max(0, open - 1);
      token(c);
    }
  }

  void token(char c) {
    if (is_digit(c)) return number();
    if (is_name(c)) {
      const size_t begin = at_;
      while (is_name(peek())) ++at_;
      return add(Token::Kind::name, text_.substr(begin, at_ - begin));
    }
    if (c == '\'' || c == '"') return string(c);
    for (const std::string_view two : {"**", "//", "==", "!=", ">=", "<="}) {
      if (!here(two)) continue;
      at_ += 2;
      return add(Token::Kind::sign, std::string(two));
    }
    if (std::string_view("+-/*%~[](){}<>=.:|,").find(c) == std::string_view::npos)
      fail(fmt::format("'{}' is no sign of an expression", escaped(std::string(1, c))));
    ++at_;
    add(Token::Kind::sign, std::string(1, c));
  }

  void number() {
    const size_t begin = at_;
    const auto digits = [&] {
      while (is_digit(peek()) || (peek() == '_' && is_digit(peek(1)))) ++at_;
    };
    digits();
    bool real = false;
    if (peek() == '.' && is_digit(peek(1))) {
      real = true;
      ++at_;
      digits();
    }
    const size_t sign = peek(1) == '+' || peek(1) == '-' ? 2 : 1;
    if ((peek() == 'e' || peek() == 'E') && is_digit(peek(sign))) {
      real = true;
      at_ += sign;
      digits();
    }
    std::string text = text_.substr(begin, at_ - begin);
    std::erase(text, '_');
    add(real ? Token::Kind::real : Token::Kind::integer, std::move(text));
  }

  uint32_t hex(size_t digits) {
    uint32_t code = 0;
    for (size_t i = 0; i < digits; ++i, ++at_) {
      const char c = peek();
      const char* all = "0123456789abcdef";
      const auto* found = std::find(all, all + 16, static_cast<char>(is_digit(c) ? c : c | 0x20));
      if (found == all + 16) fail("an escape with too few digits");
      code = code << 4 | static_cast<uint32_t>(found - all);
    }
    return code;
  }

  void string(char quote) {
    const int line = line_;
    std::string out;
    for (++at_; peek() != quote;) {
      if (at_ >= text_.size()) {
        line_ = line;
        fail("a string has no end");
      }
      const char c = peek();
      if (c != '\\') {
        out += c;
        move_to(at_ + 1);
        continue;
      }
      const char next = peek(1);
      constexpr std::string_view kNames = "nrtbfva0\\'\"";
      constexpr std::string_view kMeant{"\n\r\t\b\f\v\a\0\\'\"", 11};
      const size_t known = kNames.find(next);
      if (next == 'x' || next == 'u' || next == 'U') {
        at_ += 2;
        const uint32_t code = hex(next == 'x' ? 2 : next == 'u' ? 4 : 8);
        if (code > 0x10ffff || (code >= 0xd800 && code < 0xe000)) fail("an escape that is no character");
        append_utf8(out, code);
      } else if (next == '\n') {
        move_to(at_ + 2);
      } else if (known != std::string_view::npos) {
        out += kMeant[known];
        at_ += 2;
      } else {
        out += c;  // as Python keeps what it doesn't know
        ++at_;
      }
    }
    ++at_;
    tokens_.push_back({Token::Kind::text, std::move(out), line});
  }

  std::string text_;
  const std::string& place_;
  size_t at_ = 0;
  int line_ = 1;
  bool line_starts_ = true;
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> tokens_of(std::string_view text, const std::string& place) {
  if (text.size() > kMostTemplateBytes)
    config_error("{}: a template of {} bytes, at most {} are read", place, text.size(), kMostTemplateBytes);
  if (!is_valid_utf8(text)) config_error("{}: a template that is no UTF-8", place);
  return Lexer(normalised(text), place).all();
}

}  // namespace heddle::jinja
