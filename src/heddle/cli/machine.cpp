#include "heddle/cli/machine.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "heddle/base/error.h"
#include "heddle/runtime/predict.h"
#include "heddle/train/measure_machine.h"
#include "heddle/train/measure_ops.h"
#include "heddle/train/output_file.h"
#include "heddle/train/profile_file.h"
#include "heddle/train/run_config_plan.h"

namespace heddle::cli {

std::string machine_profile_path() {
  const auto of = [](const char* name) {
    const char* value = std::getenv(name);
    return std::string(value != nullptr ? value : "");
  };
  if (const std::string cache = of("XDG_CACHE_HOME"); !cache.empty()) return cache + "/heddle/machine.json";
  if (const std::string home = of("HOME"); !home.empty()) return home + "/.cache/heddle/machine.json";
  return "machine.json";
}

cost::MachineProfile machine_profile(const std::string& path, double seconds) {
  const std::string at = path.empty() ? machine_profile_path() : path;
  std::error_code ignored;
  if (!path.empty() || std::filesystem::exists(at, ignored)) return train::read_profile(at);
  train::MeasureOptions options;
  options.seconds = seconds;
  cost::MachineProfile profile = train::measure_machine(options);
  std::filesystem::create_directories(std::filesystem::path(at).parent_path(), ignored);
  train::write_file(at, train::profile_text(profile));
  return profile;
}

std::vector<cost::OpTime> measure_config(const train::RunConfig& config) {
  const int ranks = static_cast<int>(config.ranks());
  const train::TrainerOptions options = train::trainer_options_of(config, 0, {.memory = ranks, .cores = ranks});
  return ranks == 1 ? train::measure_steps(options, 5).ops : train::measure_rank_ops(options, 5);
}

ConfigForecast forecast_config(const train::RunConfig& config, const cost::MachineProfile& profile,
                               const JobPlaces& places) {
  ConfigForecast f;
  f.plan = train::plan_of(config);
  f.lowered = plan::lower(config.model, f.plan);
  const int ranks = f.plan.ranks();
  f.limit_bytes = train::memory_limit_of(
      config, {.memory = places.sharing_memory > 0 ? places.sharing_memory : ranks, .cores = ranks});
  runtime::ForecastInput input;
  input.backend = config.device.backend;
  input.threads = config.device.threads > 0 ? static_cast<int>(config.device.threads)
                  : places.threads > 0      ? places.threads
                                            : std::max(1, profile.cores / std::max(1, ranks));
  input.over = places.over;
  input.machine_of = places.machine_of;
  input.node_of = places.node_of;
  if (places.pace) input.pace_ns = places.pace(f.plan, f.lowered);
  input.scalar = profile.scalar;
  int64_t most = 0;
  for (int stage = 0; stage < f.plan.mesh.pp; ++stage) {
    const auto& classes = f.lowered.program.class_of_rank;
    const int rank = static_cast<int>(std::find(classes.begin(), classes.end(), stage) - classes.begin());
    most = std::max(most, runtime::arena_bytes(f.lowered.program, rank, input.backend, f.limit_bytes));
  }
  input.capacity_bytes = most;
  f.forecast = runtime::forecast(config.model, f.plan, f.lowered, profile, input);
  return f;
}

}  // namespace heddle::cli
