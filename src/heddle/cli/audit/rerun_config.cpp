#include "heddle/cli/audit/rerun_config.h"

#include <filesystem>

#include "heddle/base/error.h"
#include "heddle/session/run_folder.h"

namespace heddle::cli {

config::RunConfig rerun_config(const std::string& path, const std::vector<std::string>& set, int ranks) {
  const session::RunFolder folder{path};
  session::check_is_run(folder);
  config::RunConfig config = config::read_run_config(folder.config(), set);
  const config::RunConfig own = config::read_run_config(folder.config());
  if (ranks > 0 && ranks != config.ranks()) {
    const plan::Degrees& mesh = config.plan.mesh;
    if (const int copy = mesh.tp * mesh.cp; ranks % copy != 0)
      config_error(
          "--ranks {}: a copy of the model takes {} ranks, for the order of sums is that of the run's tp {} "
          "and cp {}",
          ranks, copy, mesh.tp, mesh.cp);
    std::vector<std::string> others = set;
    const config::RunConfig usual;
    for (const char* key : {"mesh.pp", "mesh.ep", "mesh.order", "mesh.expert_order", "parallel.schedule"})
      others.push_back(fmt::format("{}={}", key, plan::text_of(config::find_setting(key)->get(usual))));
    others.emplace_back("mesh.dp=0");
    others.push_back(fmt::format("mesh.ranks={}", ranks));
    config = config::read_run_config(folder.config(), others);
  }
  const bool same = config.plan.mesh == own.plan.mesh && config.ranks() == own.ranks();
  if (!same && !own.plan.exact_sums) {
    config_error(
        "{}: the run's train.exact_sums is off, so its digests hold in its own layout only; leave out "
        "--ranks and --set mesh",
        folder.config());
  }
  return config;
}

}  // namespace heddle::cli
