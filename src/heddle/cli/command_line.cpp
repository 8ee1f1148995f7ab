// Which subcommand the arguments ask for. Misspelt subcommands and flags are named with the nearest one that
// exists. The first argument alone is a subcommand's name: `heddle explain train` explains the section [train].
#include <algorithm>

#include "heddle/base/error.h"
#include "heddle/base/escaped.h"
#include "heddle/base/text.h"
#include "heddle/cli/command.h"
#include "heddle/cli/commands.h"
#include "heddle/cli/line/help.h"
#include "heddle/cli/line/parse.h"
#include "heddle/observe/progress.h"

namespace heddle::cli {

namespace {

Commands commands() {
  Commands all;
  for (const auto add :
       {add_train,   add_launch,  add_agent,    add_watch,   add_report,   add_audit,   add_replay, add_generate,
        add_eval,    add_convert, add_dump,     add_inspect, add_simulate, add_profile, add_probe,  add_data,
        add_explain, add_search,  add_schedule, add_predict, add_claims,   add_doctor}) {
    add(all);
  }
  return all;
}

// Of what is unlike any command all are told.
[[noreturn]] void refuse_command(const std::string& word, const Commands& all) {
  std::vector<std::string> names;
  for (const Command& each : all) names.push_back(each.name);
  if (word.starts_with('-')) {
    const std::string flag = word.substr(0, word.find('='));
    config_error("unknown flag '{}'{}", shown(flag), did_you_mean(flag, {"--help", "--version"}));
  }
  const std::string near = did_you_mean(word, names);
  config_error("unknown command '{}'{}", shown(word),
               near.empty() ? fmt::format(", accepted: {}", fmt::join(names, ", ")) : near);
}

}  // namespace

int run_command_line(int count, char** arguments) {
  constexpr int kMostColumns = 120;
  const int columns = std::min(observe::terminal_columns(1), kMostColumns);
  std::vector<std::string> words(arguments + std::min(count, 1), arguments + count);
  Commands all = commands();
  const auto is_help = [](const std::string& word) { return is_one_of(word, {"--help", "-h"}); };
  if (words.empty() || is_help(words[0]) || (words[0] == "help" && words.size() == 1)) {
    fmt::print("{}", welcome_text(all, columns));
    return kDone;
  }
  if (words[0] == "--version") {
    fmt::print("{}\n", version_text());
    return kDone;
  }
  if (words[0] == "help") {  // of a command
    words.erase(words.begin());
    words.emplace_back("--help");
  }
  const auto found =
      std::find_if(all.begin(), all.end(), [&](const Command& each) { return each.name == words[0]; });
  if (found == all.end()) refuse_command(words[0], all);
  words.erase(words.begin());
  if (std::any_of(words.begin(), std::find(words.begin(), words.end(), "--"), is_help)) {
    fmt::print("{}", help_text(*found, columns));
    return kDone;
  }
  parse(*found, words);
  return found->run();
}

}  // namespace heddle::cli
