// heddle completion: a shell's completion of command lines, written from the table of commands. bash is here.
#include "heddle/cli/line/completion.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "heddle/base/say.h"
#include "heddle/cli/commands.h"
#include "heddle/config/run_config.h"

namespace heddle::cli {

namespace {

struct CompletionOptions {
  const Commands* all = nullptr;
  std::string shell;
};

int completion(const CompletionOptions& options) {
  const auto text = options.shell == "zsh"    ? zsh_completion
                    : options.shell == "fish" ? fish_completion
                                              : bash_completion;
  say("{}", text(*options.all));
  return kDone;
}

}  // namespace

std::string words_of(const Option& option, const Commands& all) {
  if (option.name == "KEY") return fmt::format("{}", fmt::join(config::setting_keys(), " "));
  if (option.name == "COMMAND") {
    std::string names;
    for (const Command& command : all) names += (names.empty() ? "" : " ") + command.name;
    return names;
  }
  return fmt::format("{}", fmt::join(option.words, " "));
}

std::string single_quoted(const std::string& text) {
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

// Names and words are letters, digits and dashes, and stand between single quotes.
std::string bash_completion(const Commands& all) {
  std::string names, cases;
  for (const Command& command : all) {
    names += (names.empty() ? "" : " ") + command.name;
    std::string flags, standing, values;
    for (const Option& option : command.options) {
      const std::string words = words_of(option, all);
      if (option.stands_alone()) {
        standing += (standing.empty() ? "" : " ") + words;
        continue;
      }
      flags += option.name + " ";
      if (option.is_flag()) continue;
      if (option.name == "--set") {
        values += "        --set) _heddle_keys \"$word\"; return 0 ;;\n";
      } else {
        values += words.empty() ? fmt::format("        {}) return 0 ;;\n", option.name)
                                : fmt::format("        {}) words='{}' ;;\n", option.name, words);
      }
    }
    cases += fmt::format("    {})\n      words='{}'\n      [[ $word == -* ]] && words='{}--help'\n{}      ;;\n",
                         command.name, standing, flags,
                         values.empty() ? "" : fmt::format("      case $before in\n{}      esac\n", values));
  }
  const std::string keys = fmt::format("{}", fmt::join(config::setting_keys(), " "));
  return "# Completes the command lines of heddle in bash: eval \"$(heddle completion bash)\"\n"
         "_heddle_keys() {\n"
         "  compopt -o nospace\n"
         "  mapfile -t COMPREPLY < <(compgen -S = -W '" +
         keys +
         "' -- \"$1\")\n"
         "}\n"
         "_heddle() {\n"
         "  local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} words=''\n"
         "  COMPREPLY=()\n"
         "  if [ \"$COMP_CWORD\" -eq 1 ]; then\n"
         "    mapfile -t COMPREPLY < <(compgen -W '" +
         names +
         "' -- \"$word\")\n"
         "    return 0\n"
         "  fi\n"
         "  case ${COMP_WORDS[1]} in\n" +
         cases +
         "  esac\n"
         "  [ -z \"$words\" ] || mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$word\")\n"
         "}\n"
         "complete -o default -F _heddle heddle\n";
}

void add_completion(Commands& all) {
  auto [command, options] = add_command(all, "completion", "Completion of command lines in a shell", completion);
  options.all = &all;
  command
      .option("SHELL", options.shell,
              "bash: eval \"$(heddle completion bash)\" in ~/.bashrc; zsh: its text as _heddle in a folder of "
              "fpath; fish: "
              "its text as ~/.config/fish/completions/heddle.fish")
      .required()
      .among({"bash", "zsh", "fish"});
}

}  // namespace heddle::cli
