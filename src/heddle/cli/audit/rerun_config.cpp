#include "heddle/cli/audit/rerun_config.h"

#include <filesystem>

#include "heddle/base/error.h"
#include "heddle/session/run_folder.h"

namespace heddle::cli {

config::RunConfig rerun_config(const std::string& path, const std::vector<std::string>& set, int ranks) {
  const session::RunFolder folder{path};
  if (!std::filesystem::exists(folder.config())) config_error("{}: no run folder (it has no config.toml)", path);
  config::RunConfig config = config::read_run_config(folder.config(), set);
  const config::RunConfig own = config::read_run_config(folder.config());
  if (ranks > 0 && ranks != config.ranks()) {
    const config::RunConfig usual;
    plan::Degrees mesh = usual.plan.mesh;
    mesh.tp = config.plan.mesh.tp;
    mesh.cp = config.plan.mesh.cp;
    mesh.etp = config.plan.mesh.etp;
    config.plan.mesh = mesh;
    config.plan.parallel.schedule = usual.plan.parallel.schedule;
    config.mesh_ranks = ranks;
    if (ranks % config.copy_ranks() != 0)
      config_error(
          "--ranks {}: a copy of the model takes {} ranks, for the order of sums is that of the run's tp {} "
          "and cp {}",
          ranks, config.copy_ranks(), mesh.tp, mesh.cp);
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
