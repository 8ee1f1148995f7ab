// Goes through the tokens of a template: what comes next, what is wanted, and what is said when it isn't there.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "heddle/base/error.h"
#include "heddle/base/escaped.h"
#include "jinja/syntax.h"

namespace heddle::jinja {

class TokenReader {
 public:
  TokenReader(std::vector<Token> tokens, const std::string& place) : tokens_(std::move(tokens)), place_(place) {}

  [[noreturn]] void fail(const std::string& what) const { config_error("{}:{}: {}", place_, line(), what); }
  int line() const {
    if (tokens_.empty()) return 1;
    return tokens_[std::min(at_, tokens_.size() - 1)].line;
  }
  const Token* peek(size_t ahead = 0) const {
    return at_ + ahead < tokens_.size() ? &tokens_[at_ + ahead] : nullptr;
  }
  bool is(Token::Kind kind) const { return peek() != nullptr && peek()->kind == kind; }
  bool is_sign(std::string_view text) const { return is(Token::Kind::sign) && peek()->text == text; }
  bool is_word(std::string_view text) const { return is(Token::Kind::name) && peek()->text == text; }
  bool take_sign(std::string_view text) { return is_sign(text) && ++at_ > 0; }
  bool take_word(std::string_view text) { return is_word(text) && ++at_ > 0; }
  std::string found() const {
    if (peek() == nullptr) return "the end";
    switch (peek()->kind) {
      case Token::Kind::end_print:
      case Token::Kind::end_block: return "the tag's end";
      case Token::Kind::text: return "a string";
      default: return fmt::format("'{}'", escaped(peek()->text, 40));
    }
  }
  void want(Token::Kind kind, std::string_view what) {
    if (!is(kind)) fail(fmt::format("found {}, expected {}", found(), what));
    ++at_;
  }
  void want_sign(std::string_view sign) {
    if (!take_sign(sign)) fail(fmt::format("found {}, expected '{}'", found(), sign));
  }
  std::string want_name(std::string_view what) {
    if (!is(Token::Kind::name)) fail(fmt::format("found {}, expected {}", found(), what));
    return tokens_[at_++].text;
  }
  void end_block() { want(Token::Kind::end_block, "%}"); }

  std::vector<Token> tokens_;
  const std::string& place_;
  size_t at_ = 0;
};

}  // namespace heddle::jinja
