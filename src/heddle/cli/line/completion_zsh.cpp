// zsh: a function for compinit, one call of _arguments a command.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "heddle/cli/line/completion.h"
#include "heddle/cli/line/help.h"
#include "heddle/config/run_config.h"

namespace heddle::cli {

namespace {

// Text in a spec of _arguments or _describe, where these characters have a meaning.
std::string in_spec(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '[' || c == ']' || c == ':' || c == '\\') out += '\\';
    out += c;
  }
  return out;
}

// ":NAME:ACTION" behind an option that takes a value.
std::string value_spec(const Option& option, const Commands& all) {
  const std::string name = in_spec(value_name(option));
  if (option.name == "--set") return fmt::format(":{}:_heddle_keys", name);
  const std::string words = words_of(option, all);
  if (!words.empty()) return fmt::format(":{}:({})", name, words);
  return fmt::format(":{}:{}", name,
                     std::holds_alternative<std::string*>(option.into) || option.is_list() ? "_files" : "");
}

std::string spec_of(const Option& option, const Commands& all) {
  if (option.stands_alone()) {
    const std::string words = words_of(option, all);
    return fmt::format("{}:{}:{}", option.is_list() ? "*" : "", in_spec(option.name),
                       words.empty() ? "_files" : "(" + words + ")");
  }
  const std::string meaning = in_spec(option.meaning);
  if (option.is_flag()) return fmt::format("{}[{}]", option.name, meaning);
  return fmt::format("{}{}=[{}]{}", option.is_list() ? "*" : "", option.name, meaning, value_spec(option, all));
}

}  // namespace

std::string zsh_completion(const Commands& all) {
  std::string names, cases;
  for (const Command& command : all) {
    names += fmt::format("    {}\n", single_quoted(fmt::format("{}:{}", command.name, in_spec(command.meaning))));
    std::string specs;
    for (const Option& option : command.options)
      specs += fmt::format("        {} \\\n", single_quoted(spec_of(option, all)));
    cases += fmt::format("    {})\n      _arguments \\\n{}        '--help[Print this]'\n      ;;\n", command.name,
                         specs);
  }
  return fmt::format(
      "#compdef heddle\n"
      "# Completes the command lines of heddle in zsh: heddle completion zsh > ~/.zsh/_heddle, with that folder in "
      "fpath\n"
      "_heddle_keys() {{\n"
      "  compadd -S = -- {}\n"
      "}}\n"
      "_heddle() {{\n"
      "  local -a commands\n"
      "  commands=(\n{}  )\n"
      "  if (( CURRENT == 2 )); then\n"
      "    _describe command commands\n"
      "    return\n"
      "  fi\n"
      "  local command=$words[2]\n"
      "  shift words\n"
      "  (( CURRENT-- ))\n"
      "  case $command in\n{}"
      "  esac\n"
      "}}\n"
      "if [ \"$funcstack[1]\" = _heddle ]; then\n"
      "  _heddle \"$@\"\n"
      "else\n"
      "  compdef _heddle heddle\n"
      "fi\n",
      fmt::join(config::setting_keys(), " "), names, cases);
}

}  // namespace heddle::cli
