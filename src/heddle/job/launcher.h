// Launchers start the ranks of a generation on their hosts: a row each. No row reads a shell's language; a host's
// name has been checked before it stands on a line.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "heddle/job/hosts/hosts.h"

namespace heddle::job {

struct Start {
  std::vector<Host> hosts;             // in the order of the ranks, as many slots of each as there are ranks
  std::vector<std::string> program;    // with its arguments
  std::vector<std::string> variables;  // names of the environment's that every rank has
  std::string shell;              // a program that runs a command on a host, as ssh does; "": the launcher's own
  std::vector<std::string> more;  // words for the launcher, as they are
};

struct Launcher {
  std::string_view name, meaning;
  std::vector<std::string> (*words)(const Start& start);
  /// Words that run a program once on a host, with its standard input, output and end here; each word arrives as it
  /// is.
  std::vector<std::string> (*on_host)(const std::string& host, const std::string& shell,
                                      const std::vector<std::string>& words);
  /// The signal at which it kills what it has started and ends; 0: what it has started dies with it.
  int end_signal;
};

const std::vector<Launcher>& launchers();
/// Returns a launcher. ConfigError where there is none of that name. "": srun inside of a Slurm allocation, else
/// mpirun.
const Launcher& launcher_named(const std::string& name);
/// True if a name stands for the machine at hand, which needs no shell.
bool is_here(const std::string& host);

}  // namespace heddle::job
