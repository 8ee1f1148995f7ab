#include "heddle/search/launch/shell_arithmetic.h"

#include <array>
#include <cctype>

namespace heddle::search {

namespace {

constexpr int kMostDepth = 64;

bool is_name(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

// Precedence climbing; every failure is a nullopt that goes all the way up.
class Expression {
 public:
  Expression(std::string_view text, const ShellLookUp& look_up) : text_(text), look_up_(look_up) {}

  std::optional<int64_t> whole() {
    const std::optional<int64_t> value = binary(0);
    blanks();
    return at_ == text_.size() ? value : std::nullopt;
  }

 private:
  struct Operator {
    std::string_view text;
    int level;
  };
  // Longer ones first.
  static constexpr std::array<Operator, 11> kOperators{{{"==", 0},
                                                        {"!=", 0},
                                                        {"<=", 1},
                                                        {">=", 1},
                                                        {"<", 1},
                                                        {">", 1},
                                                        {"+", 2},
                                                        {"-", 2},
                                                        {"*", 3},
                                                        {"/", 3},
                                                        {"%", 3}}};
  static constexpr int kHighest = 4;

  void blanks() {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_])) != 0) ++at_;
  }

  static std::optional<int64_t> apply(std::string_view op, int64_t a, int64_t b) {
    int64_t r = 0;
    if (op == "+") return __builtin_add_overflow(a, b, &r) ? std::nullopt : std::optional(r);
    if (op == "-") return __builtin_sub_overflow(a, b, &r) ? std::nullopt : std::optional(r);
    if (op == "*") return __builtin_mul_overflow(a, b, &r) ? std::nullopt : std::optional(r);
    if (op == "==") return a == b ? 1 : 0;
    if (op == "!=") return a != b ? 1 : 0;
    if (op == "<=") return a <= b ? 1 : 0;
    if (op == ">=") return a >= b ? 1 : 0;
    if (op == "<") return a < b ? 1 : 0;
    if (op == ">") return a > b ? 1 : 0;
    if (b == 0 || (b == -1 && a == INT64_MIN)) return std::nullopt;
    return op == "/" ? a / b : a % b;
  }

  std::optional<int64_t> binary(int level) {
    if (level == kHighest) return unary();
    std::optional<int64_t> left = binary(level + 1);
    while (left) {
      blanks();
      const Operator* found = nullptr;
      for (const Operator& o : kOperators)
        if (found == nullptr && text_.substr(at_).starts_with(o.text)) found = &o;
      if (found == nullptr || found->level != level) break;
      at_ += found->text.size();
      const std::optional<int64_t> right = binary(level + 1);
      left = right ? apply(found->text, *left, *right) : std::nullopt;
    }
    return left;
  }

  std::optional<int64_t> unary() {
    blanks();
    if (at_ >= text_.size() || ++depth_ > kMostDepth) return std::nullopt;
    std::optional<int64_t> value;
    const char c = text_[at_];
    if (c == '-' || c == '+') {
      ++at_;
      value = unary();
      if (c == '-' && value) value = apply("-", 0, *value);
    } else if (c == '(') {
      ++at_;
      value = binary(0);
      blanks();
      if (at_ >= text_.size() || text_[at_] != ')') return std::nullopt;
      ++at_;
    } else if (std::isdigit(static_cast<unsigned char>(c)) != 0) {
      value = digits();
    } else {
      value = variable();
    }
    --depth_;
    return value;
  }

  std::optional<int64_t> digits() {
    int64_t n = 0;
    for (; at_ < text_.size() && std::isdigit(static_cast<unsigned char>(text_[at_])) != 0; ++at_)
      if (__builtin_mul_overflow(n, 10, &n) || __builtin_add_overflow(n, text_[at_] - '0', &n)) return std::nullopt;
    if (at_ < text_.size() && is_name(text_[at_])) return std::nullopt;
    return n;
  }

  std::optional<int64_t> variable() {
    const bool dollar = text_[at_] == '$';
    if (dollar) ++at_;
    const bool braces = dollar && at_ < text_.size() && text_[at_] == '{';
    if (braces) ++at_;
    const size_t first = at_;
    while (at_ < text_.size() && is_name(text_[at_])) ++at_;
    if (at_ == first) return std::nullopt;
    const std::string name(text_.substr(first, at_ - first));
    if (braces) {
      if (at_ >= text_.size() || text_[at_] != '}') return std::nullopt;
      ++at_;
    }
    return look_up_(name);
  }

  std::string_view text_;
  const ShellLookUp& look_up_;
  size_t at_ = 0;
  int depth_ = 0;
};

}  // namespace

std::optional<int64_t> shell_arithmetic(std::string_view text, const ShellLookUp& look_up) {
  return Expression(text, look_up).whole();
}

}  // namespace heddle::search
