// A launch script of Megatron-LM or MindSpeed, read into a launch: what job would this start?
//
// The script is foreign: it is read as far as shell_words goes, never executed, and its size is bounded. Flags that
// mean nothing here are told, not refused.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "heddle/search/launch/launch.h"

namespace heddle::search {

/// What a script leaves open.
struct ScriptContext {
  cost::Accelerator device;  // its name may be "": MindSpeed's is then an Ascend 910B, Megatron-LM's an H100
  int devices = 0;           // 0: as many as the script starts
  double imbalance = 1;
  std::map<std::string, std::string> variables;  // as if the environment had set them
};

struct LaunchScript {
  Launch launch;
  Dialect dialect = Dialect::megatron;
  int line = 0;                                           // where the command stands
  size_t end = 0;                                         // behind its last word, in the text
  std::map<std::string, std::vector<std::string>> flags;  // as the command gives them, expanded
  std::vector<std::string> notes;                         // what was assumed or left out
  std::vector<std::string> unknown;                       // flags that are not in any table
};

/// ConfigError naming place and flag: no training command, sizes that are missing or impossible.
LaunchScript read_launch_script(std::string_view text, std::string_view name, const ScriptContext& context = {});

}  // namespace heddle::search
