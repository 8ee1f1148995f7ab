// A subcommand as plain data. It has a name, its options with their destinations, and the function that carries it
// out. line/parse.h fills it in, line/help.h prints it.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace heddle::cli {

/// A flag, a flag with a value, or an argument that stands by itself.
struct Option {
  using Into =
      std::variant<bool*, int64_t*, double*, std::string*, std::optional<std::string>*, std::vector<std::string>*>;
  static constexpr double kAny = std::numeric_limits<double>::infinity();

  std::string name;  // "--steps"; "CONFIG" where it stands by itself
  Into into;         // a flag sets a bool; a list may be given again
  std::string meaning;
  std::string value;                          // how help calls it; empty: by its type
  double least = -kAny, most = kAny;          // limits of numbers, both accepted
  std::vector<std::string> words;             // the accepted ones; empty: any
  std::vector<std::string> excluded, needed;  // names of other options
  bool is_required = false;

  Option& called(std::string what) { return value = std::move(what), *this; }
  Option& from(double lowest, double highest = kAny) { return least = lowest, most = highest, *this; }
  Option& above_zero() { return from(std::numeric_limits<double>::min()); }
  Option& among(std::vector<std::string> accepted) { return words = std::move(accepted), *this; }
  Option& required() { return is_required = true, *this; }
  Option& excludes(const std::string& other) { return excluded.push_back(other), *this; }
  Option& needs(const std::string& other) { return needed.push_back(other), *this; }

  bool is_flag() const { return std::holds_alternative<bool*>(into); }
  bool is_list() const { return std::holds_alternative<std::vector<std::string>*>(into); }
  bool stands_alone() const { return !name.starts_with("--"); }
};

struct Command {
  std::string name, meaning;
  std::deque<Option>
      options;               // in the order of help; those that stand by themselves come in this order, a list last
  bool sets_keys = false;    // --set takes keys of a configuration
  std::function<int()> run;  // called when all arguments are understood; returns the exit status

  template <class T>
  Option& option(std::string option_name, T& into, std::string what) {
    Option& added = options.emplace_back();
    added.name = std::move(option_name);
    added.into = &into;
    added.meaning = std::move(what);
    return added;
  }
};

using Commands = std::deque<Command>;  // references to its members stay

template <class Options>
struct Added {
  Command& command;
  Options& options;
};

/// Adds `heddle NAME`, which `run` carries out. The options live as long as the command.
template <class Options>
Added<Options> add_command(Commands& all, const std::string& name, const std::string& what,
                           int (*run)(const Options&)) {
  const auto options = std::make_shared<Options>();
  Command& command = all.emplace_back();
  command.name = name;
  command.meaning = what;
  command.run = [options, run] { return run(*options); };
  return {command, *options};
}

inline void add_json(Command& command, bool& into) { command.option("--json", into, "Print one JSON object"); }

inline void add_set(Command& command, std::vector<std::string>& into) {
  command.option("--set", into, "Set a configuration key, such as train.steps=100; may be given again")
      .called("KEY=VALUE");
  command.sets_keys = true;
}

}  // namespace heddle::cli
