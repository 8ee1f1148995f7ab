// + - * / // % ** with Python's meaning.
#include <cmath>

#include "heddle/base/escaped.h"
#include "jinja/machine.h"

namespace heddle::jinja {

namespace {

int64_t floor_divided(int64_t a, int64_t b) { return a / b - ((a % b != 0 && (a < 0) != (b < 0)) ? 1 : 0); }

Value of_reals(Machine& machine, std::string_view sign, double a, double b) {
  if (sign == "+") return a + b;
  if (sign == "-") return a - b;
  if (sign == "*") return a * b;
  if (sign == "**") return std::pow(a, b);
  if (b == 0) machine.fail("division by zero");
  if (sign == "/") return a / b;
  const double whole = std::floor(a / b);
  return sign == "//" ? whole : a - whole * b;
}

// A text to add to one that counts as escaped.
std::string for_html(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '\'': out += "&#39;"; break;
      case '"': out += "&#34;"; break;
      default: out += c;
    }
  }
  return out;
}

Value of_integers(Machine& machine, std::string_view sign, int64_t a, int64_t b) {
  int64_t made = 0;
  bool over = false;
  if (sign == "+") over = __builtin_add_overflow(a, b, &made);
  if (sign == "-") over = __builtin_sub_overflow(a, b, &made);
  if (sign == "*") over = __builtin_mul_overflow(a, b, &made);
  if (sign == "**") {
    if (b < 0) return of_reals(machine, sign, static_cast<double>(a), static_cast<double>(b));
    if (b > 64 && (a > 1 || a < -1)) machine.fail("a number that is too large");
    made = 1;
    if (b > 64) b = 64 + b % 2;  // of 0, 1 and -1
    for (int64_t i = 0; i < b && !over; ++i) over = __builtin_mul_overflow(made, a, &made);
  }
  if (sign == "/" || sign == "//" || sign == "%") {
    if (b == 0) machine.fail("division by zero");
    if (sign == "/") return static_cast<double>(a) / static_cast<double>(b);
    if (b == -1) {
      over = sign == "//" && __builtin_sub_overflow(int64_t{0}, a, &made);
      if (sign == "%") made = 0;
    } else {
      made = sign == "//" ? floor_divided(a, b) : a - floor_divided(a, b) * b;
    }
  }
  if (over) machine.fail("a number that is too large");
  return made;
}

}  // namespace

Value Machine::arithmetic(std::string_view sign, const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) {
    if (a.is_real() || b.is_real()) return of_reals(*this, sign, a.real(), b.real());
    return of_integers(*this, sign, a.integer(), b.integer());
  }
  if (sign == "+" && a.is_text() && b.is_text()) {
    make(std::ssize(a.text()) + std::ssize(b.text()));
    if (a.is_safe() == b.is_safe()) {
      std::string both = a.text() + b.text();
      return a.is_safe() ? Value::safe(std::move(both)) : Value(std::move(both));
    }
    const std::string other = for_html(a.is_safe() ? b.text() : a.text());
    make(std::ssize(other));
    return Value::safe(a.is_safe() ? a.text() + other : other + b.text());
  }
  if (sign == "+" && a.is_list() && b.is_list() && a.is_tuple() == b.is_tuple()) {
    step(std::ssize(a.items()) + std::ssize(b.items()));
    Values items = a.items();
    items.insert(items.end(), b.items().begin(), b.items().end());
    return list(std::move(items), a.is_tuple());
  }
  if (sign == "*" && (a.is_text() || a.is_list()) != (b.is_text() || b.is_list()) &&
      (a.is_number() || b.is_number())) {
    const Value &many = a.is_number() ? b : a, &times = a.is_number() ? a : b;
    const int64_t count = std::max<int64_t>(0, want_integer(times, "*"));
    const int64_t size = many.is_text() ? std::ssize(many.text()) : std::ssize(many.items());
    if (size > 0 && count > kMostBytes / size) make(kMostBytes + 1);
    step(many.is_text() ? 0 : size * count);
    make(size * count);
    std::string text;
    Values items;
    for (int64_t i = 0; i < (size > 0 ? count : 0); ++i) {
      if (many.is_text()) text += many.text();
      if (many.is_list()) items.insert(items.end(), many.items().begin(), many.items().end());
    }
    return many.is_text() ? Value(std::move(text)) : list(std::move(items), many.is_tuple());
  }
  for (const Value* side : {&a, &b}) {
    if (side->is_undefined()) fail(fmt::format("{}: '{}' is undefined", sign, escaped(side->undefined_name(), 60)));
  }
  fail(fmt::format("{} {} {} has no meaning here", a.kind(), sign, b.kind()));
}

}  // namespace heddle::jinja
