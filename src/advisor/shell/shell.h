// Reads the part of a shell's language that launch scripts are written in, and never executes it. It has
// assignments, arrays, quotes, ${NAME:-default} and its kin, $((arithmetic)), if, case, for, while, functions, &&
// and ||, files beside the script, commands in strings and here-documents.
//
// A value that only a run would show (the output of a command, whether a file is there, what a launcher sets) is
// unknown. It travels with the values that hold it, as a mark, and stops only whoever needs them. Both sides of a
// branch on an unknown value are read. What they leave alike is known, flags that one of them adds are taken as not
// added, and all else that they change is unknown.
//
// The text is foreign: its size, the words it expands to, the rounds of its loops, the depth of what it nests and
// the work of reading it are bounded.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "advisor/shell/state.h"

namespace heddle::advisor::shell {

inline constexpr size_t kNowhere = static_cast<size_t>(-1);

/// A simple command, expanded.
struct Command {
  Values words;
  int line = 0;            // line at which it starts, from 1
  std::string file;        // the script, or the file that it sources or starts
  size_t end = kNowhere;   // behind its last word in the script's text; kNowhere: it stands in a string or file
  bool evaluated = false;  // by eval, whose place it has
  bool certain = true;     // else in a branch that may not be taken
  Values around;           // words of the command whose string it stands in, such as srun
  /// Places for a command that is the last in such a string of the script's own text, in quotes. They are the line
  /// where the statement around it begins, the place of the closing quote, and that quote.
  int outer_line = 0;
  size_t string_end = kNowhere;
  char quote = '\0';
};

struct Script {
  std::vector<Command> commands;       // in the order in which they are read
  std::vector<std::string> notes;      // "line 12: what was taken or left out"
  std::vector<Overridden> overridden;  // assignments of given variables
  std::set<std::string> used;          // variables that the script asks for or sets
  State state{""};                     // for the reasons of marks

  /// Returns why a value is not known, "line 3: …"; "" where it is.
  std::string why_unknown(std::string_view value) const { return state.reason(first_mark(value)); }
};

struct Environment {
  std::map<std::string, std::string> variables;  // they win over what the script assigns
  /// The text of a file that the script sources, by a path relative to the script's folder; nullopt: not there.
  std::function<std::optional<std::string>(const std::string&)> file;
};

/// Reads a script. ConfigError naming the line: an open quote, bounds exceeded.
Script read_script(std::string_view text, std::string_view name, const Environment& environment = {});

}  // namespace heddle::advisor::shell
