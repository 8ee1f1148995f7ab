#include "heddle/cli/line/help.h"

#include <algorithm>

#include "heddle/base/error.h"
#include "heddle/base/escaped.h"
#include "heddle/base/say.h"
#include "heddle/base/text.h"
#include "heddle/cli/commands.h"
#include "heddle/config/families/family.h"
#include "heddle/observe/progress.h"
#include "heddle/observe/table.h"

namespace heddle::cli {

namespace {

// Left and right of a gap, the right side wrapped.
std::string two_columns(const std::vector<std::pair<std::string, std::string>>& rows, int columns) {
  constexpr int kMostLeft = 28, kLeastRight = 24;
  int left = 0;
  for (const auto& row : rows) {
    const int width = observe::display_width(row.first);
    if (width <= kMostLeft) left = std::max(left, width);
  }
  const int indent = left + 4, right = std::max(kLeastRight, columns - indent);
  std::string text;
  for (const auto& [name, meaning] : rows) {
    const int width = observe::display_width(name);
    std::string line = "  " + name;
    if (width > left) {
      text += line + "\n";
      line.clear();
    }
    for (const std::string& part : observe::wrapped(meaning, right)) {
      line += std::string(static_cast<size_t>(std::max(0, indent - observe::display_width(line))), ' ') + part;
      text += line + "\n";
      line.clear();
    }
  }
  return text;
}

}  // namespace

std::string value_name(const Option& option) {
  if (!option.value.empty()) return option.value;
  if (!option.words.empty()) return fmt::format("{}", fmt::join(option.words, "|"));
  if (std::holds_alternative<int64_t*>(option.into)) return "N";
  return std::holds_alternative<double*>(option.into) ? "NUMBER" : "TEXT";
}

std::string call_of(const Option& option) {
  const std::string name = option.name + (option.is_list() ? "…" : "");
  return option.is_required ? " " + name : fmt::format(" [{}]", name);
}

std::string welcome_text(const Commands& all, int columns) {
  std::vector<std::pair<std::string, std::string>> rows;
  for (const Command& command : all) {
    std::string call = "heddle " + command.name;
    for (const Option& option : command.options) {
      if (!option.stands_alone()) continue;
      call += call_of(option);
    }
    rows.emplace_back(call, command.meaning);
  }
  const auto paragraph = [&](const std::string& text) {
    return fmt::format("{}\n", fmt::join(observe::wrapped(text, columns), "\n"));
  };
  return paragraph(fmt::format(
             "Heddle plans, checks and trains language models, dense and mixture-of-experts, of {} families "
             "(`heddle explain model.hf` names them).",
             config::families().size())) +
         "\n" + two_columns(rows, columns) + "\n" +
         paragraph(
             "`heddle COMMAND --help` describes one. In place of CONFIG, - is "
             "the standard input. Exit status: 0 done, 1 failed, 2 bad input, 130 stopped.");
}

std::string help_text(const Command& command, int columns) {
  std::string call = "heddle " + command.name;
  std::vector<std::pair<std::string, std::string>> words, flags;
  for (const Option& option : command.options) {
    if (option.stands_alone()) {
      call += call_of(option);
      words.emplace_back(option.name, option.meaning);
    } else {
      flags.emplace_back(option.is_flag() ? option.name : fmt::format("{} {}", option.name, value_name(option)),
                         option.meaning + (option.is_required ? " (required)" : ""));
    }
  }
  words.insert(words.end(), flags.begin(), flags.end());
  words.emplace_back("--help", "Print this");
  return fmt::format("{} [OPTIONS]\n{}\n\n{}", call, fmt::join(observe::wrapped(command.meaning, columns), "\n"),
                     two_columns(words, columns));
}

int help_columns() {
  constexpr int kMostColumns = 120;
  return std::min(observe::terminal_columns(1), kMostColumns);
}

const Command& command_named(const Commands& all, const std::string& name) {
  std::vector<std::string> names;
  for (const Command& each : all) {
    if (each.name == name) return each;
    names.push_back(each.name);
  }
  const std::string near = did_you_mean(name, names);
  config_error("unknown command '{}'{}", shown(name),
               near.empty() ? fmt::format(", accepted: {}", fmt::join(names, ", ")) : near);
}

namespace {

struct HelpOptions {
  const Commands* all = nullptr;
  std::string command;  // empty: all
};

int help(const HelpOptions& options) {
  say("{}", options.command.empty() ? welcome_text(*options.all, help_columns())
                                    : help_text(command_named(*options.all, options.command), help_columns()));
  return kDone;
}

}  // namespace

void add_help(Commands& all) {
  auto [command, options] = add_command(all, "help", "Options of a command; without COMMAND, all commands", help);
  options.all = &all;
  command.option("COMMAND", options.command, "The command to describe");
}

}  // namespace heddle::cli
