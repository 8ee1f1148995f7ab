// Runs a template: bounded in steps, in bytes made and in depth, so that no template can hang or fill the memory.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "heddle/base/error.h"
#include "jinja/letters.h"
#include "jinja/syntax.h"

namespace heddle::jinja {

class Machine;

struct Arguments {
  Values placed;
  std::vector<std::pair<std::string, Value>> named;

  size_t count() const { return placed.size() + named.size(); }
  /// The argument at a place or of a name; null where there is neither.
  const Value* find(size_t place, std::string_view name) const;
  Value get(size_t place, std::string_view name, Value otherwise) const;
};

/// `self` is the object of a method, and the value that a filter or a test is applied to.
using Function = Value (*)(Machine& machine, const Value& self, const Arguments& arguments);

struct NamedFunction {
  static constexpr size_t kAny = 1000;

  std::string_view name;
  Function function;
  size_t most = 0;  // arguments
};

/// A value that a template calls: a function of ours with the object it is bound to, or a macro, which sees the
/// scopes that it stands in. The body of a call is a macro too.
struct Callable {
  const NamedFunction* function = nullptr;
  Value self;
  const Statement* macro = nullptr;
  size_t lowest = 0, scopes = 0;  // of a macro: the scopes that it sees; 0: the template's alone
};

class Machine {
 public:
  static constexpr int64_t kMostSteps = 20'000'000;
  static constexpr int64_t kMostBytes = 256 << 20;  // made in all, of texts and lists
  static constexpr int kMostCalls = 50;             // of macros within each other

  /// `place` is the template's name for messages.
  Machine(const Body& body, std::string place, std::vector<std::pair<std::string, Value>> globals);

  /// Bytes that a round of a loop wrote for one of the watched values.
  struct Written {
    size_t item;  // of the list
    size_t begin, end;
    bool own;  // the loop goes through the list; otherwise the round took the value by its number
  };
  struct Rendered {
    std::string text;
    std::vector<std::pair<size_t, size_t>> generated;  // bytes of {% generation %}
    bool unplaced = false;                             // one stood where text is kept: in a macro or a set
    std::vector<Written> written;                      // in the order of the text; nothing empty
  };
  /// Looks which of the list's mappings each round of a loop writes.
  void watch(const Value& list);
  /// Sets the day that strftime_now returns, "2025-06-28". Templates find it defined only where it is `asked_for`,
  /// for they have a day of their own; called it can be in any case.
  void set_day(std::string day, bool asked_for);
  /// ConfigError "place:line: …" for what goes wrong.
  Rendered run();

  // For functions.
  [[noreturn]] void fail(const std::string& what) const;
  /// "no filter 'trimm', did you mean 'trim'?"
  [[noreturn]] void fail_name(std::span<const NamedFunction> table, std::string_view what,
                              std::string_view name) const;
  void step(int64_t count = 1);
  bool equal(const Value& a, const Value& b);
  std::optional<int> compared(const Value& a, const Value& b);
  std::string text_of(const Value& value);
  /// Called before so many bytes are made.
  void make(int64_t bytes);
  Value text(std::string made) {
    make(std::ssize(made));
    return {std::move(made)};
  }
  Value list(Values items, bool tuple = false) {
    make(std::ssize(items) * static_cast<int64_t>(sizeof(Value)));
    return Value::list(std::move(items), tuple);
  }
  Value lazy(Values items) {
    make(std::ssize(items) * static_cast<int64_t>(sizeof(Value)));
    return Value::list(std::move(items), false, true);
  }
  Namespace* new_namespace();
  /// Items that a loop over the value goes through. Fails for what has no items.
  Values items_of(const Value& value);
  /// Sets or lists whatever holds the text that it must be.
  const std::string& want_text(const Value& value, std::string_view who) const;
  int64_t want_integer(const Value& value, std::string_view who) const;
  Value attribute(const Value& object, const std::string& name);
  Value item(const Value& object, const Value& key);
  Value filter(std::string_view name, const Value& value, const Arguments& arguments);
  bool test(std::string_view name, const Value& value, const Arguments& arguments);
  bool contains(const Value& in, const Value& what);
  Value arithmetic(std::string_view sign, const Value& a, const Value& b);

 private:
  using Scope = std::vector<std::pair<std::string, Value>>;
  enum class Flow : uint8_t { on, next, leave };

  Flow run(const Body& body);
  Flow run(const Statement& statement);
  Value macro_here(const Statement& macro) const;
  Flow run_if(const Statement& statement);
  Flow run_for(const Statement& statement);
  Flow run_round(const Statement& statement, const Value& item);
  void assign(const Expression& target, const Value& value);
  void set(const std::string& name, Value value);
  const Value* find(std::string_view name) const;
  void write(std::string_view text);
  std::string captured(const Body& body);

  Value evaluate(const Expression& e);
  Value slice(const Expression& e);
  /// ConfigError for more arguments than it takes.
  Value run(const NamedFunction& function, const Value& self, const Arguments& arguments);
  Value call(const Expression& e, Value caller = {});
  Value call_macro(const Callable& called, const Arguments& arguments, Value caller);
  Value call_body(const Statement& macro, const Arguments& arguments, Value caller);
  Arguments arguments_of(const std::vector<Argument>& arguments);

  const Body& body_;
  std::string place_;
  std::vector<Scope> scopes_;
  size_t lowest_ = 1;  // of a macro: the scopes below, but for the first, are not its own
  std::vector<std::unique_ptr<Namespace>> namespaces_;
  std::string* out_ = nullptr;
  Rendered rendered_;
  std::unordered_map<const void*, size_t> watched_;  // mappings by their identity
  std::optional<size_t> taken_;                      // in this round, by its number
  std::string day_;
  int64_t steps_ = 0, bytes_ = 0;
  int line_ = 1, calls_ = 0, depth_ = 0;
};

/// Counts what is within each other; ends with its scope.
struct Deeper {
  Deeper(int& depth, int most, const Machine& machine, std::string_view what) : depth_(depth) {
    if (++depth_ > most) machine.fail(fmt::format("{} more than {} deep", what, most));
  }
  ~Deeper() { --depth_; }
  Deeper(const Deeper&) = delete;
  Deeper& operator=(const Deeper&) = delete;

 private:
  int& depth_;
};

/// Statements and expressions within each other, over all calls of macros.
inline constexpr int kMostRunning = 1000;

/// The function that returns the day, and its form of a day by a format.
inline constexpr std::string_view kDay = "strftime_now";
Value strftime(const std::string& day, Machine& machine, const Arguments& arguments);

std::span<const NamedFunction> filters();
std::span<const NamedFunction> tests();
std::span<const NamedFunction> functions();
std::span<const NamedFunction> text_methods();
std::span<const NamedFunction> map_methods();
std::span<const NamedFunction> list_methods();
const NamedFunction* find_in(std::span<const NamedFunction> table, std::string_view name);

}  // namespace heddle::jinja
