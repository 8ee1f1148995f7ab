// The subcommands of `heddle`: each file adds its own, with its options and the function that carries it out. That
// one writes to standard output, throws what went wrong and returns the exit status; main.cpp makes messages of
// errors.
#pragma once

#include "heddle/base/failure.h"

namespace CLI {
class App;
}

namespace heddle::cli {

void add_train(CLI::App& app);
void add_generate(CLI::App& app);
void add_inspect(CLI::App& app);
void add_profile(CLI::App& app);
void add_simulate(CLI::App& app);
void add_doctor(CLI::App& app);
void add_explain(CLI::App& app);
void add_data(CLI::App& app);
void add_predict(CLI::App& app);
void add_claims(CLI::App& app);
void add_search(CLI::App& app);
void add_schedule(CLI::App& app);

/// Parses the arguments, runs the subcommand and returns the exit status. Throws what the subcommand throws.
int run_command_line(int count, char** arguments);

}  // namespace heddle::cli
