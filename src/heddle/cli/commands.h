// The subcommands of `heddle`: each file adds its own, with its options and the function that carries it out. That
// one writes to standard output, throws what went wrong and returns the exit status; main.cpp makes messages of
// errors.
#pragma once

#include "heddle/base/failure.h"
#include "heddle/cli/command.h"

namespace heddle::cli {

void add_train(Commands& all);
void add_launch(Commands& all);
void add_probe(Commands& all);
void add_generate(Commands& all);
void add_dump(Commands& all);
void add_inspect(Commands& all);
void add_profile(Commands& all);
void add_simulate(Commands& all);
void add_doctor(Commands& all);
void add_explain(Commands& all);
void add_data(Commands& all);
void add_predict(Commands& all);
void add_claims(Commands& all);
void add_convert(Commands& all);
void add_eval(Commands& all);
void add_watch(Commands& all);
void add_report(Commands& all);
void add_agent(Commands& all);
void add_audit(Commands& all);
void add_replay(Commands& all);
void add_check(Commands& all);
void add_part(Commands& all);
void add_plan(Commands& all);
void add_search(Commands& all);
void add_schedule(Commands& all);
void add_version(Commands& all);
/// They list all commands, themselves too: added last. `all` must outlive its commands' calls.
void add_help(Commands& all);
void add_completion(Commands& all);
void add_man(Commands& all);

/// Parses the arguments, runs the subcommand and returns the exit status. Throws what the subcommand throws.
int run_command_line(int count, char** arguments);

}  // namespace heddle::cli
