// Values of a template, with Python's truth, equality, order and form as text.
//
// Lists and maps never change once made, so no value holds itself; only a namespace does change, and the machine
// that runs the template owns those. Nesting is bounded (kMostDepth), so that nothing that walks a value can run
// out of stack. So is what is walked (kMostWeight): a list that holds another twice, which holds a third twice, ….
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace heddle::jinja {

class Value;
struct Callable;

using Values = std::vector<Value>;
using Entries = std::vector<std::pair<Value, Value>>;

struct List {
  Values items;
  bool tuple = false;
  bool lazy = false;  // Python's generator, which is true even when it yields nothing and has no items by place
  int depth = 1;
  int64_t weight = 1;
};
struct Map {
  Entries entries;  // in the order of their making
  int depth = 1;
  int64_t weight = 1;
};
struct Namespace {
  std::map<std::string, Value> members;
};
struct Undefined {
  std::string name;  // the name that was asked for
};
struct None {};

class Value {
 public:
  static constexpr int kMostDepth = 100;
  static constexpr int64_t kMostWeight = 1 << 23;

  Value() : v_(Undefined{}) {}
  Value(Undefined u) : v_(std::move(u)) {}                                         // NOLINT
  Value(None n) : v_(n) {}                                                         // NOLINT
  Value(bool b) : v_(b) {}                                                         // NOLINT
  Value(int64_t i) : v_(i) {}                                                      // NOLINT
  Value(uint64_t i) : v_(i) {}                                                     // NOLINT
  Value(double d) : v_(d) {}                                                       // NOLINT
  Value(std::string s) : v_(std::make_shared<const std::string>(std::move(s))) {}  // NOLINT
  Value(const char* s) : Value(std::string(s)) {}                                  // NOLINT
  Value(Namespace* n) : v_(n) {}                                                   // NOLINT
  Value(std::shared_ptr<const Callable> c) : v_(std::move(c)) {}                   // NOLINT
  /// ConfigError when nested too deep.
  static Value list(Values items, bool tuple = false, bool lazy = false);
  /// A text that counts as escaped for HTML, so that what is added to it is escaped.
  static Value safe(std::string text);
  static Value map(Entries entries);

  bool is_undefined() const { return std::holds_alternative<Undefined>(v_); }
  bool is_none() const { return std::holds_alternative<None>(v_); }
  bool is_boolean() const { return std::holds_alternative<bool>(v_); }
  bool is_integer() const { return std::holds_alternative<int64_t>(v_); }
  /// A whole number above all others is real too, and written by its digits.
  bool is_real() const { return std::holds_alternative<double>(v_) || std::holds_alternative<uint64_t>(v_); }
  bool is_number() const { return is_integer() || is_real() || is_boolean(); }
  bool is_text() const { return std::holds_alternative<std::shared_ptr<const std::string>>(v_); }
  bool is_list() const { return std::holds_alternative<std::shared_ptr<const List>>(v_); }
  bool is_map() const { return std::holds_alternative<std::shared_ptr<const Map>>(v_); }
  bool is_safe() const { return safe_; }

  const std::string& text() const { return *std::get<std::shared_ptr<const std::string>>(v_); }
  const Values& items() const { return std::get<std::shared_ptr<const List>>(v_)->items; }
  bool is_lazy() const { return is_list() && std::get<std::shared_ptr<const List>>(v_)->lazy; }
  bool is_tuple() const { return is_list() && std::get<std::shared_ptr<const List>>(v_)->tuple; }
  const Entries& entries() const { return std::get<std::shared_ptr<const Map>>(v_)->entries; }
  Namespace* space() const {
    const auto* n = std::get_if<Namespace*>(&v_);
    return n == nullptr ? nullptr : *n;
  }
  const Callable* callable() const {
    const auto* c = std::get_if<std::shared_ptr<const Callable>>(&v_);
    return c == nullptr ? nullptr : c->get();
  }
  const std::string& undefined_name() const { return std::get<Undefined>(v_).name; }
  /// The integer of a number that is whole, booleans among them.
  int64_t integer() const { return is_boolean() ? std::get<bool>(v_) : std::get<int64_t>(v_); }
  double real() const {
    if (const auto* large = std::get_if<uint64_t>(&v_)) return static_cast<double>(*large);
    return is_real() ? std::get<double>(v_) : static_cast<double>(integer());
  }
  /// The digits of a whole number above int64_t's; null of others.
  const uint64_t* large() const { return std::get_if<uint64_t>(&v_); }

  /// The identity of a mapping, which all its copies share; otherwise null.
  const void* identity() const {
    const auto* m = std::get_if<std::shared_ptr<const Map>>(&v_);
    return m == nullptr ? nullptr : m->get();
  }

  bool truth() const;
  int depth() const;
  /// The cost to walk it: a value each, and eight bytes of a text each.
  int64_t weight() const;
  /// The kind's name for a message: "a text", "a list", ….
  std::string_view kind() const;
  /// The value under a key of a map; null where there is none.
  const Value* find(const Value& key) const;
  const Value* find_word(std::string_view key) const;

 private:
  std::variant<Undefined, None, bool, int64_t, uint64_t, double, std::shared_ptr<const std::string>,
               std::shared_ptr<const List>, std::shared_ptr<const Map>, Namespace*, std::shared_ptr<const Callable>>
      v_;
  bool safe_ = false;
};

bool equal(const Value& a, const Value& b);
/// Below 0, 0, above 0; nothing where Python refuses to compare.
std::optional<int> compared(const Value& a, const Value& b);
/// The text as str() and repr() write it. ConfigError for what has no text of its own.
std::string text_of(const Value& value);
std::string repr_of(const Value& value);
/// JSON as json.dumps(ensure_ascii=False) writes it.
struct JsonForm {
  int indent = -1;  // below 0: on one line
  bool sorted = false, ascii = false;
  std::string comma = ", ", colon = ": ";
};
std::string json_of(const Value& value, const JsonForm& form);

}  // namespace heddle::jinja
