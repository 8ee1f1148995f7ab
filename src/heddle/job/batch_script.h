// A Slurm batch script that starts a job's supervisor inside of its allocation.
#pragma once

#include <string>
#include <vector>

namespace heddle::job {

struct BatchJob {
  std::string name;
  int nodes = 1, ranks_per_node = 1;
  std::vector<std::string> settings;  // the user's lines of #SBATCH, as "time=8:00:00" or "exclusive"
  std::vector<std::string> words;     // the supervisor's: the program and its arguments
};

/// Returns the script. A setting of the user's takes the place of the script's own of that name. ConfigError where
/// one is none, or says how many nodes and ranks there are, which is the job's to say.
std::string batch_script(const BatchJob& job);
/// Quotes a word, so that a shell reads it as one.
std::string shell_word(std::string_view word);

}  // namespace heddle::job
