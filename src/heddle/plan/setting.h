// One row for everything that a user may set: key, type, accepted values, meaning and the member that it sets. A
// switch also has its effect on the numbers, its cost, its page, and what tests try.
//
// TOML in and out, `--set`, `heddle explain` and refusals walk the rows (config/run_config.h). So do the tests:
// tests/parity draws every switch, tests/train/switch_parity_test.cpp holds each to its class. A new row is in all
// of them.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace heddle::plan {

/// The effect of a switch on loss and gradients.
enum class MathsClass : uint8_t {
  bitwise,        // nothing: the same bits
  reassociates,   // the same sums, rounded at other places
  changes_maths,  // another function is trained
};
std::string_view name_of(MathsClass maths);
/// The promise of the class, as a sentence.
std::string_view promise_of(MathsClass maths);

/// The value of a setting: numbers as they are, enumerations and lists as their words.
using Value = std::variant<bool, int64_t, double, std::string>;
/// As `--set` takes it.
std::string text_of(const Value& value);

/// The values of a switch that `heddle train --mode` tries on the plans that it found best.
struct Planned {
  enum class Where : uint8_t {
    anywhere,
    several_ranks,
    own_memory,      // on a device whose memory is not the host's
    narrow_weights,  // where weights are bf16, beside wider masters
  };
  std::vector<Value> values;  // empty: whatever tests try
  Where where = Where::anywhere;
  /// Settings that go with whichever value ("parallel.chunks=0"), or several choices of them.
  std::vector<std::vector<std::string>> beside = {{}};
  bool residency = false;  // where something that persists lies, or in what form: memory.budget chooses it too
};

struct Switch {
  MathsClass maths = MathsClass::bitwise;
  std::string effect;  // one sentence
  std::string cost;
  std::string page;  // "docs/features/fusions.md"
  /// The condition under which the class does not hold, whatever else is set: a sentence without its point; mostly
  /// "".
  std::string unless;
  /// For tests: values, where type and words don't tell them all. Then settings with which the switch has something
  /// to do ("mesh.pp=2"), and those values of a bitwise switch that reassociate nevertheless.
  std::vector<Value> tried;
  std::vector<std::string> beside;
  std::vector<Value> reassociating;
  std::optional<Planned> planned;  // none: it stays as it is configured
};
inline std::string page(std::string_view name) { return "docs/features/" + std::string(name) + ".md"; }

/// A row but for its member.
struct Row {
  /// A share is a text such as "80%", of which its owner knows the whole.
  enum class Kind : uint8_t { boolean, integer, number, word, bytes, bytes_or_share, list };
  std::string key;  // "train.learning_rate"
  Kind kind = Kind::word;
  std::string meaning;
  double least = 0, most = 0;      // of numbers, both accepted
  std::vector<std::string> words;  // accepted words; empty: any. Of a list: those that may stand in it
  bool numbers = false;            // beside words: whole numbers from least to most, as text
  bool text = false;               // of words: control characters are accepted, for it is never part of a message
  /// The check of a list, as one text with commas: ConfigError, without a place, when it is not accepted. Null:
  /// always.
  std::function<void(const std::string&)> check;
  std::string unset = "off";  // what holds where the key is not present
  /// Names in other trainers, in papers and among people: `explain` and refusals find the key by them.
  std::vector<std::string> synonyms;
  std::optional<Switch> as_switch;

  /// True if a text is one of its words, or a number that is accepted beside them; any text where it has none.
  bool takes(const std::string& word) const;
  /// "an integer of 1 or more"
  std::string accepted() const;
  /// As it stands in TOML.
  std::string text_of(const Value& value) const;
  bool is_switch(MathsClass maths) const { return as_switch && as_switch->maths == maths; }
  /// The values that tests set a switch to: each is accepted by itself, though not by every model and mesh.
  std::vector<Value> tried_values() const;
  /// The values that a planner tries for a switch that it plans.
  std::vector<Value> planned_values() const;

  /// The bounds of what has none, and of what must be above 0.
  static constexpr double kAny = std::numeric_limits<double>::infinity();
  static constexpr double kTiny = std::numeric_limits<double>::min();
};

template <class Owner>
struct Setting : Row {
  std::function<Value(const Owner&)> get;
  std::function<void(Owner&, const Value&)> set;
  /// Null: always. A key of an optional group (model.rope_scaling) exists only where the group does.
  std::function<bool(const Owner&)> present;

  Setting& also_called(std::vector<std::string> names) {
    synonyms = std::move(names);
    return *this;
  }
  Setting& acts(MathsClass maths, std::string effect, std::string cost, std::string page) {
    as_switch = Switch{maths, std::move(effect), std::move(cost), std::move(page), {}, {}, {}, {}};
    return *this;
  }
  Setting& planned(std::vector<Value> values = {}, Planned::Where where = Planned::Where::anywhere,
                   std::vector<std::vector<std::string>> beside = {{}}) {
    as_switch->planned = Planned{std::move(values), where, std::move(beside)};
    return *this;
  }
  Setting& residency() {
    as_switch->planned->residency = true;
    return *this;
  }
  Setting& unless(std::string exception) {
    as_switch->unless = std::move(exception);
    return *this;
  }
  Setting& tried(std::vector<Value> values) {
    as_switch->tried = std::move(values);
    return *this;
  }
  Setting& beside(std::vector<std::string> settings) {
    as_switch->beside = std::move(settings);
    return *this;
  }
};

}  // namespace heddle::plan
