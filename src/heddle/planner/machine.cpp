#include "heddle/planner/machine.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "heddle/backends/backend.h"
#include "heddle/base/error.h"
#include "heddle/base/files/output_file.h"
#include "heddle/base/parallel.h"
#include "heddle/base/say.h"
#include "heddle/observe/terminal/doing.h"
#include "heddle/planner/measure_machine.h"
#include "heddle/planner/measure_ops.h"
#include "heddle/planner/measured_rates.h"
#include "heddle/planner/profile_file.h"
#include "heddle/runtime/predict.h"
#include "heddle/train/run_config_plan.h"

namespace heddle::planner {

std::string machine_profile_path(std::string_view backend) {
  const std::string name =
      backends::named(backend).shares_memory ? "machine.json" : fmt::format("machine-{}.json", backend);
  const auto of = [](const char* name) {
    const char* value = std::getenv(name);
    return std::string(value != nullptr ? value : "");
  };
  if (const std::string cache = of("XDG_CACHE_HOME"); !cache.empty()) return cache + "/heddle/" + name;
  if (const std::string residency = of("HOME"); !residency.empty()) return residency + "/.cache/heddle/" + name;
  return name;
}

Support prices(const cost::MachineProfile& profile, std::string_view backend) {
  // The host's kernels and the reference's share a machine and its profile.
  const bool apart = !backends::named(backend).shares_memory;
  if (profile.backend == backend || (!apart && profile.backend == backends::all().front().name))
    return Support::yes();
  return Support::no(
      fmt::format("the profile is of device.backend \"{}\", wanted one of \"{}\": heddle profile "
                  "--device {} --out FILE measures it",
                  profile.backend, backend, backend));
}

cost::MachineProfile machine_profile(const std::string& path, double seconds, const std::string& backend) {
  const std::string at = path.empty() ? machine_profile_path(backend) : path;
  std::error_code ignored;
  if (!path.empty() && !std::filesystem::exists(path, ignored))
    config_error("{}: there is no such profile; `heddle profile --out {}` measures this machine and writes it",
                 path, path);
  if (!path.empty() || std::filesystem::exists(at, ignored)) {
    cost::MachineProfile known = read_profile(at);
    if (const Support fits = prices(known, backend); !fits) config_error("{}: {}", at, fits.reason);
    return known;
  }
  (void)backends::named(backend).open({});  // says at once that there is none
  MeasureOptions options;
  options.backend = backend;
  options.seconds = seconds;
  say(stderr, "this machine has no profile yet: it is measured for about {:.0f} s, once, and kept in {}\n", seconds,
      at);
  cost::MachineProfile profile;
  {
    observe::Doing doing("measuring");
    options.progress = [&](std::string_view what, double share) {
      doing.now(fmt::format("measuring {}", what), share);
    };
    profile = measure_machine(options);
  }
  std::filesystem::create_directories(std::filesystem::path(at).parent_path(), ignored);
  write_file(at, profile_text(profile));
  return profile;
}

std::vector<cost::OpTime> measure_config(const config::RunConfig& config) {
  const int ranks = static_cast<int>(config.ranks());
  const train::TrainerOptions options = train::trainer_options_of(config, 0, {.memory = ranks, .cores = ranks});
  return ranks == 1 ? measure_steps(options, 5).ops : measure_rank_ops(options, 5);
}

JobPlaces on_hosts(int ranks, int hosts, const cost::MachineProfile& profile) {
  if (ranks % hosts != 0) config_error("--hosts {} does not divide {} ranks", hosts, ranks);
  JobPlaces places;
  if (hosts == 1) return places;
  if (cost::link_bytes_per_us(profile, cost::Link::nodes, hosts) <= 0)
    config_error(
        "--hosts {}: the profile has no messages between hosts; `heddle profile --out FILE` under mpirun, on "
        "ranks of several hosts, adds them",
        hosts);
  places.over = cost::Link::nodes;
  const int each = ranks / hosts;
  for (int r = 0; r < ranks; ++r) places.node_of.push_back(r / each);
  places.machine_of = places.node_of;
  places.sharing_memory = each;
  places.threads = std::max(1, profile.cores / each);
  return places;
}

ConfigPrediction predict_config(const config::RunConfig& config, const cost::MachineProfile& profile,
                                const JobPlaces& places, bool tried) {
  ConfigPrediction f;
  f.plan = train::plan_of(rated(config, profile, places));  // as `heddle train` would have it
  f.lowered = plan::lower(config.model, f.plan);
  const int ranks = f.plan.ranks();
  f.limit_bytes = train::memory_limit_of(
      config, {.memory = places.sharing_memory > 0 ? places.sharing_memory : ranks, .cores = ranks});
  runtime::PredictionInput input;
  input.backend = config.device.backend;
  input.threads = !backends::named(input.backend).shares_memory ? 1  // whatever the host's threads are
                  : config.device.threads > 0                   ? static_cast<int>(config.device.threads)
                  : places.threads > 0                          ? places.threads
                                                                : std::max(1, profile.cores / std::max(1, ranks));
  input.over = places.over;
  input.machine_of = places.machine_of;
  input.node_of = places.node_of;
  if (places.pace) input.pace_ns = places.pace(f.plan, f.lowered);
  input.scalar = profile.scalar;
  std::vector<int64_t> arenas(static_cast<size_t>(f.plan.mesh.pp));
  for_each_index(f.plan.mesh.pp, [&](int64_t stage) {
    const auto& classes = f.lowered.program.class_of_rank;
    const int rank = static_cast<int>(std::find(classes.begin(), classes.end(), stage) - classes.begin());
    arenas[stage] =
        runtime::arena_bytes(f.lowered.program, rank, input.backend, f.limit_bytes, tried, train::room_of(config));
  });
  input.uncertainty = places.uncertainty;
  input.caching_allocator = places.caching_allocator;
  input.capacity_bytes = *std::max_element(arenas.begin(), arenas.end());
  input.limit_bytes = f.limit_bytes;
  f.prediction = runtime::predict_step(config.model, f.plan, f.lowered, profile, input);
  return f;
}

}  // namespace heddle::planner
