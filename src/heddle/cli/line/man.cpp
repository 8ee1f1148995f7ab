// heddle man: manual pages in roff, written from the rows that --help prints.
#include <fmt/format.h>

#include "heddle/base/say.h"
#include "heddle/cli/commands.h"
#include "heddle/cli/line/help.h"

namespace heddle::cli {

namespace {

struct ManOptions {
  const Commands* all = nullptr;
  std::string command;  // empty: the program
};

// Text in roff: no escapes, and no line that reads as a request.
std::string roff(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\') {
      out += "\\e";
    } else if (c == '-') {
      out += "\\-";
    } else {
      out += c;
    }
  }
  return out.starts_with('.') || out.starts_with('\'') ? "\\&" + out : out;
}

std::string heading(const std::string& name, const std::string& meaning) {
  std::string upper = name;
  for (char& c : upper) c = c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
  return fmt::format(".TH {} 1 \"\" \"heddle {}\" \"Heddle\"\n.SH NAME\n{} \\- {}\n", upper, HEDDLE_VERSION,
                     roff(name), roff(meaning));
}

std::string page_of(const Command& command) {
  std::string out = heading("heddle-" + command.name, command.meaning);
  out += fmt::format(".SH SYNOPSIS\n.B heddle {}\n", roff(command.name));
  for (const Option& option : command.options)
    if (option.stands_alone()) out += fmt::format("{}\n", roff(call_of(option).substr(1)));
  out += "[\\fIOPTIONS\\fR]\n.SH OPTIONS\n";
  for (const bool alone : {true, false})
    for (const Option& option : command.options) {
      if (option.stands_alone() != alone) continue;
      const std::string value = option.is_flag() || alone ? "" : " \\fI" + roff(value_name(option)) + "\\fR";
      out += fmt::format(".TP\n\\fB{}\\fR{}\n{}{}\n", roff(option.name), value, roff(option.meaning),
                         option.is_required && !alone ? " (required)" : "");
    }
  out += ".TP\n\\fB\\-\\-help\\fR\nPrint the options\n";
  out += ".SH EXIT STATUS\n0 done, 1 failed, 2 bad input, 130 stopped\n.SH SEE ALSO\n.BR heddle (1)\n";
  return out;
}

std::string page_of(const Commands& all) {
  std::string out = heading("heddle", "plans, checks and trains language models");
  out += ".SH SYNOPSIS\n.B heddle\n\\fICOMMAND\\fR [\\fIOPTIONS\\fR]\n.SH COMMANDS\n";
  for (const Command& command : all)
    out += fmt::format(".TP\n.BR heddle\\-{} (1)\n{}\n", roff(command.name), roff(command.meaning));
  out +=
      ".SH EXIT STATUS\n0 done, 1 failed, 2 bad input, 130 stopped\n"
      ".SH FILES\n.TP\n~/.cache/heddle\nThe profile of this machine, as heddle profile keeps it\n";
  return out;
}

int man(const ManOptions& options) {
  say("{}",
      options.command.empty() ? page_of(*options.all) : page_of(command_named(*options.all, options.command)));
  return kDone;
}

}  // namespace

void add_man(Commands& all) {
  auto [command, options] = add_command(
      all, "man", "The manual page of the program or of a command, as roff: heddle man plan | man -l -", man);
  options.all = &all;
  command.option("COMMAND", options.command, "The command to describe");
}

}  // namespace heddle::cli
