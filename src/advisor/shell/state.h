// State of a script so far: variables, what is not known and why, notes, and how much reading may still cost.
//
// An unknown value (the output of a command, what a launcher sets) stands in a value as a mark: '\0', a letter, a
// number, '\0'. So it travels with the text and stops only what needs it. Scripts hold no zero bytes.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace heddle::advisor::shell {

using Values = std::vector<std::string>;

/// True if it has neither mark.
inline bool is_known(std::string_view text) { return text.find('\0') == std::string_view::npos; }
/// True if it has no mark but those of variables that are not set: a condition takes these for empty.
bool is_certain(std::string_view text);
std::string without_unset(std::string_view text);
/// True if it has only marks.
bool is_all_unknown(std::string_view text);
/// The first mark of a text; "" where it has none.
std::string first_mark(std::string_view text);

enum class Truth : uint8_t { no, yes, unknown };
constexpr Truth negation(Truth t) { return t == Truth::yes ? Truth::no : t == Truth::no ? Truth::yes : t; }

/// An assignment of the script that a given value takes the place of: its value's place in the script's text.
struct Overridden {
  std::string name;
  int line = 0;
  size_t begin = 0, end = 0;
};

class State {
 public:
  explicit State(const std::string& name) : name(name), source(name) {}

  /// Marks that say why something is not known, "line 3: the output of `date`".
  std::string unknown(const std::string& why);
  std::string unset(const std::string& name, int line);
  /// Returns the reason of a mark.
  std::string reason(std::string_view mark) const;

  void note(int line, const std::string& what);
  [[noreturn]] void fail(int line, const std::string& what) const;
  void spend(int line, size_t bytes);     // bytes that words expand to
  void step(int line, size_t steps = 1);  // characters and commands looked at
  void copy(int line);                    // a copy of all variables: its cost is bounded too

  const Values* find(const std::string& name) const;
  /// The value of a name whether set or not: marks where it is not.
  Values value_of(const std::string& name, int line);
  /// Sets a name, but not one that is given from outside.
  void assign(const std::string& name, Values values);
  bool is_given(const std::string& name) const { return given.contains(name); }
  /// The characters between words: IFS.
  std::string separators() const;

  std::string name;    // the script
  std::string source;  // what is read now: the script, or a file that it sources or starts
  std::map<std::string, Values> variables;
  std::set<std::string> given;  // names set from outside: assignments don't change them
  std::set<std::string> used;   // names that the script asks for or sets
  Values arguments;             // arguments of the function or script that is read
  bool arguments_known = false;
  std::vector<std::string> notes;
  std::set<std::string> taken_as_empty;                              // unset names that conditions have asked for
  std::string doubt;                                                 // why the last condition is not known
  std::function<std::string(std::string_view, int line)> output_of;  // output of $(…)
  int depth = 0;

 private:
  std::vector<std::string> reasons_;
  std::map<std::string, std::string> unset_;  // name -> mark
  size_t expanded_ = 0, steps_ = 0, copied_ = 0;
};

/// Holds the depth of what nests while it lives.
class Deeper {
 public:
  Deeper(State& state, int line);
  ~Deeper() { --state_.depth; }
  Deeper(const Deeper&) = delete;
  Deeper& operator=(const Deeper&) = delete;

 private:
  State& state_;
};

}  // namespace heddle::advisor::shell
