// Which subcommand the arguments ask for. Misspelt subcommands and flags are named with the nearest one that
// exists. The first argument alone is a subcommand's name: `heddle explain train` explains the section [train].
#include <algorithm>

#include "heddle/base/error.h"
#include "heddle/base/escaped.h"
#include "heddle/base/say.h"
#include "heddle/base/text.h"
#include "heddle/cli/command.h"
#include "heddle/cli/commands.h"
#include "heddle/cli/line/help.h"
#include "heddle/cli/line/parse.h"

namespace heddle::cli {

namespace {

void add_commands(Commands& all) {
  for (const auto add :
       {add_train,   add_launch,  add_agent,  add_watch,      add_report,   add_audit,   add_replay, add_generate,
        add_eval,    add_convert, add_dump,   add_inspect,    add_simulate, add_profile, add_probe,  add_data,
        add_explain, add_plan,    add_search, add_schedule,   add_predict,  add_claims,  add_check,  add_part,
        add_doctor,  add_version, add_help,   add_completion, add_man}) {
    add(all);
  }
}

}  // namespace

int run_command_line(int count, char** arguments) {
  std::vector<std::string> words(arguments + std::min(count, 1), arguments + count);
  Commands all;
  add_commands(all);
  const auto is_help = [](const std::string& word) { return is_one_of(word, {"--help", "-h"}); };
  if (words.empty() || is_help(words[0])) words = {"help"};
  if (words[0] == "--version") words[0] = "version";
  if (words[0].starts_with('-')) {
    const std::string flag = words[0].substr(0, words[0].find('='));
    config_error("unknown flag '{}'{}", shown(flag), did_you_mean(flag, {"--help", "--version"}));
  }
  const Command& found = command_named(all, words[0]);
  words.erase(words.begin());
  if (std::any_of(words.begin(), std::find(words.begin(), words.end(), "--"), is_help)) {
    say("{}", help_text(found, help_columns()));
    return kDone;
  }
  parse(found, words);
  return found.run();
}

}  // namespace heddle::cli
