#include "heddle/job/batch_script.h"

#include <algorithm>
#include <string_view>

#include "heddle/base/error.h"
#include "heddle/base/escaped.h"
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

namespace {

struct Setting {
  std::string key, value;  // "": a flag
};

// "time=8:00:00": no way into another line.
Setting parsed(const std::string& text) {
  const size_t equals = text.find('=');
  Setting setting{text.substr(0, equals), equals == text.npos ? "" : text.substr(equals + 1)};
  constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyz-0123456789";
  const bool is_key =
      !setting.key.empty() && setting.key[0] != '-' && setting.key.find_first_not_of(kLetters) == setting.key.npos;
  const bool is_value =
      std::all_of(setting.value.begin(), setting.value.end(), [](char c) { return c >= ' ' && c <= '~'; });
  if (!is_key || !is_value || (equals != text.npos && setting.value.empty()))
    config_error("--sbatch '{}': KEY=VALUE or KEY is expected, as in time=8:00:00", shown(text));
  for (const char* const own : {"nodes", "ntasks", "ntasks-per-node"}) {
    if (setting.key == own) config_error("--sbatch {}: --hosts and --ranks say how many there are", own);
  }
  return setting;
}

std::string settings_text(std::vector<Setting> all, const std::vector<std::string>& users) {
  for (const std::string& text : users) {
    Setting setting = parsed(text);
    const auto own = std::find_if(all.begin(), all.end(), [&](const Setting& s) { return s.key == setting.key; });
    if (own == all.end()) {
      all.push_back(std::move(setting));
    } else {
      own->value = std::move(setting.value);
    }
  }
  std::string text;
  for (const Setting& s : all)
    text += fmt::format("#SBATCH --{}{}{}\n", s.key, s.value.empty() ? "" : "=", s.value);
  return text;
}

}  // namespace

std::string batch_script(const BatchJob& job) {
  std::string name;  // a line of Slurm's own, which no quotes protect
  for (const char c : job.name) name += (c > ' ' && c <= '~' && c != '#') ? c : '_';
  std::string line;
  for (const std::string& word : job.words) line += (line.empty() ? "" : " ") + shell_word(word);
  const std::string settings = settings_text({{"job-name", name.empty() ? "heddle" : name},
                                              {"nodes", fmt::format("{}", job.nodes)},
                                              {"ntasks-per-node", fmt::format("{}", job.ranks_per_node)},
                                              {"no-kill", ""},
                                              {"signal", "B:USR2@120"},
                                              {"requeue", ""},
                                              {"open-mode", "append"}},
                                             job.settings);
  return fmt::format(
      "#!/bin/bash\n"
      "# no-kill: a node that fails does not take the allocation with it; the supervisor goes on with the others.\n"
      "# signal: before time runs out, a checkpoint, while there is time for it.\n"
      "{}"
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
      settings, line, kNoHosts, kNoHosts);
}

}  // namespace heddle::job
