// Reads a launch script of Megatron-LM or MindSpeed into the launch that it would start.
//
// The script is foreign: it is read as far as shell/shell.h goes, never executed, and its size is bounded. Flags
// that no row of the table reads are reported, by what they would change.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "advisor/script/dialect.h"
#include "advisor/words.h"

namespace heddle::advisor {

/// The values that a script leaves open.
struct ScriptContext {
  cost::Accelerator device;  // its name may be "": MindSpeed's is then an Ascend 910B, Megatron-LM's an H100
  int devices = 0;           // 0: as many as the script starts
  double imbalance = 1;
  std::map<std::string, std::string> variables;  // they win over what the script assigns
  /// The text of a file that the script sources, by its path from the script's folder; nullopt: it is not there.
  std::function<std::optional<std::string>(const std::string&)> file;
};

/// Flags of the command that no row of the table of flags reads, without those that change nothing here.
struct OtherFlags {
  std::vector<std::string> unknown;  // on no list: they may change the model
  std::vector<std::string> sizes;    // they change the model, and are not described
  std::vector<std::string> pace;     // they change time or memory, and are not estimated
};

/// An assignment in the script's text that a given variable takes the place of.
struct GivenInPlace {
  std::string name;
  int line = 0;
  size_t begin = 0, end = 0;  // its value's place
};

/// Settings of Heddle for what takes no time (rates, decay, epsilons, the base of rotary positions, weights of
/// losses), and those that Heddle has no key for.
struct Constants {
  std::vector<std::string> settings;  // "train.learning_rate=0.0003"
  std::vector<std::string> lost;      // "--apply-layernorm-1p"
};

struct LaunchScript {
  Launch launch;
  Dialect dialect = Dialect::megatron;
  int line = 0;               // line of the command
  std::string place;          // its file and line: "run.sh:58"
  std::optional<size_t> end;  // behind its last word; none: it stands in a string or file
  /// Places for a command that ends the string of another one (srun … bash -c "…"): its closing quote, the place of
  /// that and the line of the other command.
  char quote = '\0';
  size_t string_end = 0;
  int outer_line = 0;
  std::vector<size_t> later_ends;                         // of commands below that train the same model
  bool evaluated = false;                                 // by eval, from a variable
  std::map<std::string, std::vector<std::string>> flags;  // as the command gives them, expanded; known values
  std::string connections;                                // CUDA_DEVICE_MAX_CONNECTIONS where it is set and known
  std::vector<std::string> notes;                         // assumptions and omissions
  OtherFlags others;
  std::vector<GivenInPlace> given;
  Constants constants;
};

/// Reads a script. ConfigError naming place and flag: no training command, sizes that are missing, unknown or
/// impossible, a variable in the context that the script has none of.
LaunchScript read_launch_script(std::string_view text, std::string_view name, const ScriptContext& context = {});

}  // namespace heddle::advisor
