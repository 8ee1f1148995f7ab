// How a subcommand comes to its arguments: its own options, bound by CLI11, and the function that they go to.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace heddle::cli {

/// A subcommand that has been added. What CLI11 parses it parses into `options`, which live as long as the command.
class Command : public CLI::App {
 public:
  using CLI::App::App;
  std::function<int()> run;  // called when all arguments are understood; returns the exit status
};

template <class Options>
struct Added {
  Command& command;
  Options& options;
};

/// Adds `heddle NAME`, which `run` carries out.
template <class Options>
Added<Options> add_command(CLI::App& app, const std::string& name, const std::string& what,
                           int (*run)(const Options&)) {
  const auto options = std::make_shared<Options>();
  const auto command = std::make_shared<Command>(what, name);
  command->allow_extras();  // refused by run_command_line, with the nearest flag
  command->run = [options, run] { return run(*options); };
  app.add_subcommand(command);
  return {*command, *options};
}

inline void add_json(CLI::App& command, bool& into) { command.add_flag("--json", into, "Print one JSON object"); }

inline void add_set(CLI::App& command, std::vector<std::string>& into) {
  command.add_option("--set", into, "Set a configuration key, such as train.steps=100; may be given again")
      ->type_name("KEY=VALUE")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
}

}  // namespace heddle::cli
