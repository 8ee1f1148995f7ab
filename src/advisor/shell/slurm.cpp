#include "advisor/shell/slurm.h"

#include <algorithm>
#include <cctype>

namespace heddle::advisor::shell {

namespace {

// The number at the end of "8", "gpu:8", "gpu:h100:8".
std::string count_in(std::string_view value) {
  value = value.substr(0, value.find_first_of(" \t\r#"));
  const size_t colon = value.rfind(':');
  if (colon != std::string_view::npos) value.remove_prefix(colon + 1);
  const bool whole = !value.empty() && value.size() < 8 &&
                     std::all_of(value.begin(), value.end(), [](unsigned char c) { return std::isdigit(c) != 0; });
  return whole ? std::string(value) : "";
}

}  // namespace

void set_of_slurm(std::string_view text, State& state) {
  std::string nodes, tasks_per_node, tasks, gpus;
  for (size_t at = text.find("#SBATCH"); at != std::string_view::npos; at = text.find("#SBATCH", at + 1)) {
    if (at > 0 && text[at - 1] != '\n') continue;
    std::string_view line = text.substr(at + 7, text.find('\n', at) - at - 7);
    line.remove_prefix(std::min(line.find_first_not_of(" \t"), line.size()));
    const auto option = [&](std::string_view name, std::string& into) {
      if (!line.starts_with(name)) return;
      std::string_view value = line.substr(name.size());
      if (!value.starts_with("=") && !value.starts_with(" ") && !value.starts_with("\t") && name.size() > 2) return;
      value.remove_prefix(std::min(value.find_first_not_of("= \t"), value.size()));
      if (std::string n = count_in(value); !n.empty()) into = n;
    };
    option("--nodes", nodes), option("-N", nodes);
    option("--ntasks-per-node", tasks_per_node);
    option("--ntasks", tasks), option("-n", tasks);
    option("--gpus-per-node", gpus), option("--gres", gpus), option("--gpus-per-task", gpus);
  }
  const auto set = [&](const char* name, const std::string& value) {
    if (!value.empty() && state.find(name) == nullptr) state.variables[name] = {value};
  };
  if (tasks.empty() && !nodes.empty() && !tasks_per_node.empty())
    tasks = std::to_string(std::stol(nodes) * std::stol(tasks_per_node));
  for (const char* name : {"SLURM_NNODES", "SLURM_JOB_NUM_NODES"}) set(name, nodes);
  set("SLURM_NTASKS_PER_NODE", tasks_per_node);
  for (const char* name : {"SLURM_NTASKS", "SLURM_NPROCS"}) set(name, tasks);
  for (const char* name : {"SLURM_GPUS_ON_NODE", "SLURM_GPUS_PER_NODE"}) set(name, gpus);
}

}  // namespace heddle::advisor::shell
