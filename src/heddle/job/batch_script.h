// A Slurm batch script that starts a job's supervisor inside of its allocation.
#pragma once

#include <string>
#include <vector>

namespace heddle::job {

struct BatchJob {
  std::string name;
  int hosts = 1, spares = 0, ranks_per_host = 1;
  std::vector<std::string> words;  // of the supervisor: the program and its arguments
};

std::string batch_script(const BatchJob& job);
/// As a shell reads it as one word.
std::string shell_word(std::string_view word);

}  // namespace heddle::job
