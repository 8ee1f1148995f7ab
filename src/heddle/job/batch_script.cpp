#include "heddle/job/batch_script.h"

#include "heddle/base/error.h"
#include "heddle/base/text.h"
#include "heddle/job/supervisor.h"

namespace heddle::job {

std::string shell_word(std::string_view word) {
  constexpr std::string_view kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./=,:+@%";
  if (!word.empty() && word.find_first_not_of(kPlain) == word.npos) return std::string(word);
  std::string text = "'";
  for (const char letter : word) text += letter == '\'' ? "'\\''" : std::string(1, letter);
  return text + "'";
}

std::string batch_script(const BatchJob& job) {
  std::string name;  // a line of Slurm's own, which no quotes protect
  for (const char c : job.name) name += (c > ' ' && c <= '~' && c != '#') ? c : '_';
  std::string line;
  for (const std::string& word : job.words) line += (line.empty() ? "" : " ") + shell_word(word);
  return fmt::format(
      "#!/bin/bash\n"
      "#SBATCH --job-name={}\n"
      "#SBATCH --nodes={}\n"
      "#SBATCH --ntasks-per-node={}\n"
      "# A node that fails does not take the allocation with it: the supervisor goes on with the others.\n"
      "#SBATCH --no-kill\n"
      "# Before time runs out: a checkpoint, while there is time for it.\n"
      "#SBATCH --signal=B:USR2@120\n"
      "#SBATCH --requeue\n"
      "#SBATCH --open-mode=append\n"
      "{} &\n"
      "supervisor=$!\n"
      "trap 'kill -USR2 \"$supervisor\"' USR2 TERM\n"
      "wait \"$supervisor\"\n"
      "status=$?\n"
      "# A signal ends the first wait before the supervisor has ended.\n"
      "while kill -0 \"$supervisor\" 2>/dev/null; do wait \"$supervisor\"; status=$?; done\n"
      "# {}: no node of this allocation answers; Slurm finds others.\n"
      "if [ \"$status\" -eq {} ]; then scontrol requeue \"$SLURM_JOB_ID\"; fi\n"
      "exit \"$status\"\n",
      name.empty() ? "heddle" : name, job.hosts + job.spares, job.ranks_per_host, line, kNoHosts, kNoHosts);
}

}  // namespace heddle::job
