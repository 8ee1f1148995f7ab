#include "advisor/shell/arithmetic.h"

#include <array>
#include <cctype>

namespace heddle::advisor::shell {

namespace {

constexpr int kMostArithmeticDepth = 64;

bool is_digit(char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; }
bool is_name(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

struct Operator {
  std::string_view text;
  int level;
};
// Longer ones first: the first that fits is meant.
constexpr std::array<Operator, 19> kOperators{{{"<<", 7},
                                               {">>", 7},
                                               {"==", 5},
                                               {"!=", 5},
                                               {"<=", 6},
                                               {">=", 6},
                                               {"&&", 1},
                                               {"||", 0},
                                               {"**", 10},
                                               {"<", 6},
                                               {">", 6},
                                               {"+", 8},
                                               {"-", 8},
                                               {"*", 9},
                                               {"/", 9},
                                               {"%", 9},
                                               {"&", 4},
                                               {"^", 3},
                                               {"|", 2}}};
constexpr int kHighest = 11;

// Precedence climbing. What is no expression raises `wrong_`, which ends the reading; what is unknown goes on.
class Expression {
 public:
  Expression(std::string_view text, const Names& names) : text_(text), names_(names) {}

  Number whole() {
    blanks();
    if (at_ == text_.size()) return {0, ""};  // as a shell has it
    Number n = choice();
    blanks();
    if (wrong_ || at_ != text_.size()) return {};
    return n;
  }

 private:
  void blanks() {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_])) != 0) ++at_;
  }
  bool takes(std::string_view what) {
    blanks();
    if (!text_.substr(at_).starts_with(what)) return false;
    at_ += what.size();
    return true;
  }
  Number fail() {
    wrong_ = true;
    return {};
  }

  static std::optional<int64_t> power(int64_t a, int64_t b) {
    int64_t r = 1;
    if (b < 0 || b > 64) return std::nullopt;
    for (; b > 0; --b)
      if (__builtin_mul_overflow(r, a, &r)) return std::nullopt;
    return r;
  }
  static std::optional<int64_t> apply(std::string_view op, int64_t a, int64_t b) {
    int64_t r = 0;
    if (op == "+") return __builtin_add_overflow(a, b, &r) ? std::nullopt : std::optional(r);
    if (op == "-") return __builtin_sub_overflow(a, b, &r) ? std::nullopt : std::optional(r);
    if (op == "*") return __builtin_mul_overflow(a, b, &r) ? std::nullopt : std::optional(r);
    if (op == "**") return power(a, b);
    if (op == "==") return a == b ? 1 : 0;
    if (op == "!=") return a != b ? 1 : 0;
    if (op == "<=") return a <= b ? 1 : 0;
    if (op == ">=") return a >= b ? 1 : 0;
    if (op == "<") return a < b ? 1 : 0;
    if (op == ">") return a > b ? 1 : 0;
    if (op == "&") return a & b;
    if (op == "|") return a | b;
    if (op == "^") return a ^ b;
    if (op == "<<" || op == ">>") {
      if (a < 0 || b < 0 || b > 62) return std::nullopt;
      if (op == ">>") return a >> b;
      return a > (INT64_MAX >> b) ? std::nullopt : std::optional(a << b);
    }
    if (b == 0 || (b == -1 && a == INT64_MIN)) return std::nullopt;
    return op == "/" ? a / b : a % b;
  }

  static const std::string& reason(const Number& a, const Number& b) {
    return a.value || a.unknown.empty() ? b.unknown : a.unknown;
  }

  Number combined(std::string_view op, const Number& a, const Number& b) {
    const auto is = [](const Number& n, bool truth) { return n.value && (*n.value != 0) == truth; };
    if (op == "&&" || op == "||") {
      const bool decides = op == "||";
      if (is(a, decides) || is(b, decides)) return {decides ? 1 : 0, ""};
      if (a.value && b.value) return {decides ? 0 : 1, ""};
      return {std::nullopt, reason(a, b)};
    }
    if (!a.value || !b.value) return {std::nullopt, reason(a, b)};
    const std::optional<int64_t> r = apply(op, *a.value, *b.value);
    return r ? Number{r, ""} : fail();
  }

  // a ? b : c
  Number choice() {
    if (++depth_ > kMostArithmeticDepth) return fail();
    Number n = binary(0);
    if (!wrong_ && takes("?")) {
      const bool outer = mute_;
      mute_ = outer || (n.value && *n.value == 0);
      const Number yes = choice();
      if (wrong_ || !takes(":")) return fail();
      mute_ = outer || (n.value && *n.value != 0);
      const Number no = choice();
      mute_ = outer;
      if (wrong_) return {};
      if (n.value) {
        n = *n.value != 0 ? yes : no;
      } else if (yes.value && no.value && *yes.value == *no.value) {
        n = yes;
      }
    }
    --depth_;
    return n;
  }

  Number binary(int level) {
    if (level == kHighest) return unary();
    Number left = binary(level + 1);
    while (!wrong_) {
      blanks();
      const Operator* found = nullptr;
      for (const Operator& o : kOperators)
        if (found == nullptr && text_.substr(at_).starts_with(o.text)) found = &o;
      if (found == nullptr || found->level != level) break;
      at_ += found->text.size();
      const Number right = binary(found->text == "**" ? level : level + 1);
      if (wrong_) break;
      left = combined(found->text, left, right);
    }
    return left;
  }

  Number unary() {
    blanks();
    if (wrong_ || at_ >= text_.size() || ++depth_ > kMostArithmeticDepth) return fail();
    Number n;
    const char c = text_[at_];
    if (text_.substr(at_).starts_with("++") || text_.substr(at_).starts_with("--")) {
      const int64_t by = c == '+' ? 1 : -1;
      at_ += 2;
      blanks();
      const std::string name = name_here();
      if (name.empty()) return fail();
      n = combined("+", names_.value(name), {by, ""});
      assign(name, n);
    } else if (c == '-' || c == '+' || c == '!' || c == '~') {
      ++at_;
      n = unary();
      if (wrong_) return {};
      if (n.value && c == '-') n = combined("-", {0, ""}, n);
      if (n.value && c == '!') n = {*n.value == 0 ? 1 : 0, ""};
      if (n.value && c == '~') n = {~*n.value, ""};
    } else if (c == '(') {
      ++at_;
      n = choice();
      if (wrong_ || !takes(")")) return fail();
    } else if (c == '\0') {  // a mark
      const size_t end = text_.find('\0', at_ + 1);
      if (end == std::string_view::npos) return fail();
      n.unknown = text_.substr(at_, end + 1 - at_);
      at_ = end + 1;
      // Digits beside it make it another number, as unknown.
      while (at_ < text_.size() && (is_name(text_[at_]) || text_[at_] == '\0')) ++at_;
    } else if (is_digit(c)) {
      n = digits();
    } else {
      n = variable();
    }
    --depth_;
    return n;
  }

  Number digits() {
    int64_t n = 0, base = 10;
    if (text_.substr(at_).starts_with("0x") || text_.substr(at_).starts_with("0X")) at_ += 2, base = 16;
    for (;; ++at_) {
      const char c = at_ < text_.size() ? text_[at_] : ' ';
      if (c == '\0') {  // "1$X"
        const size_t end = text_.find('\0', at_ + 1);
        if (end == std::string_view::npos) return fail();
        const std::string mark(text_.substr(at_, end + 1 - at_));
        at_ = end + 1;
        return {std::nullopt, mark};
      }
      if (c == '#' && base == 10) {  // base#digits
        if (n < 2 || n > 36) return fail();
        base = n, n = 0;
        continue;
      }
      int64_t digit = is_digit(c)                                        ? c - '0'
                      : std::isalpha(static_cast<unsigned char>(c)) != 0 ? (c | 32) - 'a' + 10
                                                                         : 99;
      if (digit >= base) break;
      if (__builtin_mul_overflow(n, base, &n) || __builtin_add_overflow(n, digit, &n)) return fail();
    }
    if (at_ < text_.size() && is_name(text_[at_])) return fail();
    return {n, ""};
  }

  std::string name_here() {
    const size_t first = at_;
    if (at_ < text_.size() && is_digit(text_[at_])) return "";
    while (at_ < text_.size() && is_name(text_[at_])) ++at_;
    return std::string(text_.substr(first, at_ - first));
  }

  void assign(const std::string& name, const Number& n) {
    if (!mute_ && !wrong_) names_.assign(name, n);
  }

  Number variable() {
    std::string name = name_here();
    if (name.empty()) return fail();
    if (at_ < text_.size() && text_[at_] == '[') {  // an element
      const size_t end = text_.find(']', at_);
      if (end == std::string_view::npos) return fail();
      name += text_.substr(at_, end + 1 - at_);
      at_ = end + 1;
    }
    blanks();
    const std::string_view rest = text_.substr(at_);
    if (rest.starts_with("++") || rest.starts_with("--")) {
      at_ += 2;
      const Number before = names_.value(name);
      assign(name, combined(rest.starts_with("++") ? "+" : "-", before, {1, ""}));
      return before;
    }
    for (const std::string_view op : {"=", "+=", "-=", "*=", "/=", "%="}) {
      if (!rest.starts_with(op) || rest.starts_with("==")) continue;
      at_ += op.size();
      Number n = choice();
      if (wrong_) return {};
      if (op.size() == 2) n = combined(op.substr(0, 1), names_.value(name), n);
      assign(name, n);
      return n;
    }
    return names_.value(name);
  }

  std::string_view text_;
  const Names& names_;
  size_t at_ = 0;
  int depth_ = 0;
  bool wrong_ = false, mute_ = false;
};

}  // namespace

Number arithmetic(std::string_view text, const Names& names) { return Expression(text, names).whole(); }

}  // namespace heddle::advisor::shell
