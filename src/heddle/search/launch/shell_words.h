// The part of a shell's language that launch scripts are written in, read and never executed: assignments, arrays,
// quotes, ${NAME:-default}, $((arithmetic)), line continuations. What would have to run (command substitution,
// sourced files, the branches of if, for and case) is left out and said.
//
// The text is foreign: its size, the words it expands to and the depth of what it nests are bounded.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace heddle::search {

struct ShellCommand {
  std::vector<std::string> words;
  int line = 0;    // where it starts, from 1
  size_t end = 0;  // behind its last word, in the text
};

struct ShellText {
  std::vector<ShellCommand> commands;  // simple commands in order, expanded
  std::vector<std::string> notes;      // "line 12: what was left out"
};

/// `given` are variables that the environment sets; assignments in the script win over them. ConfigError naming
/// the line: an open quote, arithmetic that can't be read, bounds exceeded.
ShellText read_shell(std::string_view text, std::string_view name,
                     const std::map<std::string, std::string>& given = {});

}  // namespace heddle::search
