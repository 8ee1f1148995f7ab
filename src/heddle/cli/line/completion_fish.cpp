// fish: a line of `complete` for each command and each option.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "heddle/cli/line/completion.h"
#include "heddle/config/run_config.h"

namespace heddle::cli {

namespace {

std::string fish_line(const Command& command, const Option& option, const Commands& all) {
  const std::string at = fmt::format("complete -c heddle -n {}", single_quoted("__heddle_runs " + command.name));
  const std::string words = words_of(option, all);
  const std::string meaning = single_quoted(option.meaning);
  if (option.stands_alone())
    return words.empty() ? fmt::format("{} -F\n", at) : fmt::format("{} -f -a {}\n", at, single_quoted(words));
  const std::string name = option.name.substr(2);
  if (option.is_flag()) return fmt::format("{} -l {} -d {}\n", at, name, meaning);
  if (option.name == "--set") return fmt::format("{} -l {} -x -a '(__heddle_keys)' -d {}\n", at, name, meaning);
  if (!words.empty()) return fmt::format("{} -l {} -x -a {} -d {}\n", at, name, single_quoted(words), meaning);
  const bool file = std::holds_alternative<std::string*>(option.into) || option.is_list();
  return fmt::format("{} -l {} {} -d {}\n", at, name, file ? "-r -F" : "-x", meaning);
}

}  // namespace

std::string fish_completion(const Commands& all) {
  std::string lines;
  for (const Command& command : all) {
    lines += fmt::format("complete -c heddle -n __heddle_first -f -a {} -d {}\n", command.name,
                         single_quoted(command.meaning));
    for (const Option& option : command.options) lines += fish_line(command, option, all);
    lines += fmt::format("complete -c heddle -n {} -l help -d 'Print this'\n",
                         single_quoted("__heddle_runs " + command.name));
  }
  return fmt::format(
      "# Completes the command lines of heddle in fish: heddle completion fish > "
      "~/.config/fish/completions/heddle.fish\n"
      "function __heddle_first\n"
      "    test (count (commandline -opc)) -eq 1\n"
      "end\n"
      "function __heddle_runs\n"
      "    set -l words (commandline -opc)\n"
      "    test (count $words) -gt 1; and test $words[2] = $argv[1]\n"
      "end\n"
      "function __heddle_keys\n"
      "    printf '%s=\\n' {}\n"
      "end\n"
      "complete -c heddle -n __heddle_first -f -l help -d 'Print this'\n"
      "complete -c heddle -n __heddle_first -f -l version -d 'Which build this is'\n{}",
      fmt::join(config::setting_keys(), " "), lines);
}

}  // namespace heddle::cli
