// heddle train.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "heddle/base/error.h"
#include "heddle/cli/choose_plan.h"
#include "heddle/cli/commands.h"
#include "heddle/cli/rank_run.h"
#include "heddle/cli/training_run.h"
#include "heddle/comm/mpi_world.h"
#include "heddle/observe/units.h"
#include "heddle/train/output_file.h"
#include "heddle/train/profile_file.h"

namespace heddle::cli {

namespace {

using Json = nlohmann::ordered_json;

constexpr int kMostThreadRanks = 256;

Json json_of(const RunSummary& s) {
  Json json{{"folder", s.folder},
            {"checkpoint", s.checkpoint},
            {"report", s.report},
            {"first_step", s.first_step},
            {"steps", s.steps},
            {"interrupted", s.interrupted},
            {"seconds", s.seconds},
            {"loss", s.loss},
            {"held_out_loss", nullptr},
            {"tokens_per_s", s.tokens_per_s},
            {"flops_per_s", s.flops_per_s},
            {"predicted_reserved_bytes", s.predicted_reserved_bytes},
            {"reserved_bytes", s.reserved_bytes}};
  if (s.first_steps_s > 0) {
    json["step_foretold_seconds"] = s.foretold_s;
    json["first_steps_seconds"] = s.first_steps_s;
  }
  if (s.held_out_loss) json["held_out_loss"] = *s.held_out_loss;
  return json;
}

void print(const RunSummary& s) {
  fmt::print("{} after {} steps in {}: loss {}", s.interrupted ? "stopped" : "done", s.steps,
             duration_text(s.seconds), number_text(s.loss));
  if (s.held_out_loss) fmt::print(", held-out {}", number_text(*s.held_out_loss));
  fmt::print("\nmedian {}, {}; arena {} (predicted {})\n", count_text(s.tokens_per_s, "tok/s"),
             count_text(s.flops_per_s, "FLOP/s"), bytes_text(static_cast<double>(s.reserved_bytes)),
             bytes_text(static_cast<double>(s.predicted_reserved_bytes)));
  fmt::print("report      {}\ncheckpoint  {}\n", s.report, s.checkpoint);
  fmt::print("{}", s.interrupted ? "go on with --resume\n"
                                 : fmt::format("try         heddle generate {} --prompt \"The \"\n", s.folder));
}

// The configuration of a job whose launcher has decided on the number of ranks.
train::RunConfig config_for(const std::string& path, std::vector<std::string> set, int ranks) {
  const train::RunConfig config = train::read_run_config(path, set);
  if (config.mesh.ranks != 0 && config.mesh.ranks != ranks) {
    config_error("{}: mesh.ranks is {}, the launcher has started {} processes", path, config.mesh.ranks, ranks);
  }
  set.push_back(fmt::format("mesh.ranks={}", ranks));
  return train::read_run_config(path, set);
}

// Chooses the plan, tells which, and returns what a step of it is said to take.
double choose(const TrainOptions& options, std::vector<std::string>& set) {
  const PlanMode mode = plan_mode_named(options.mode);
  if (comm::launched_by_mpi())
    config_error("--mode: ranks are threads of one process there; start it without mpirun");
  if (options.resume) config_error("--mode: a run that goes on keeps its plan; leave out --mode with --resume");
  constexpr double kMeasure_s = 45, kChoose_s = 30;
  const cost::MachineProfile profile = machine_profile(options.profile, kMeasure_s);
  const PlanChoice choice = choose_plan(options.config, set, profile, mode, kChoose_s);
  fmt::print(stderr, "mode {}: {} plans simulated, {} do not fit; {}: a step of {}, {} a rank", options.mode,
             choice.simulated, choice.refused,
             choice.chosen.set.empty() ? "as configured" : fmt::format("{}", fmt::join(choice.chosen.set, " ")),
             duration_text(choice.chosen.step_us * 1e-6),
             bytes_text(static_cast<double>(choice.chosen.reserved_bytes)));
  if (choice.configured.refusal.empty() && !choice.chosen.set.empty()) {
    fmt::print(stderr, " (as configured {}, {})", duration_text(choice.configured.step_us * 1e-6),
               bytes_text(static_cast<double>(choice.configured.reserved_bytes)));
  }
  fmt::print(stderr, "\n");
  set.insert(set.end(), choice.chosen.set.begin(), choice.chosen.set.end());
  return choice.chosen.step_us * 1e-6;
}

// The machine's profile learns what real steps took: half of the way, as others may have had the machine meanwhile.
void refit(const TrainOptions& options, const RunSummary& summary) {
  if (summary.first_steps_s <= 0 || summary.foretold_s <= 0) return;
  const std::string path = options.profile.empty() ? machine_profile_path() : options.profile;
  cost::MachineProfile profile = train::read_profile(path);
  profile.scalar = std::clamp(profile.scalar * std::sqrt(summary.first_steps_s / summary.foretold_s), 0.5, 2.0);
  train::write_file(path, train::profile_text(profile));
}

}  // namespace

int train(const TrainOptions& options) {
  std::vector<std::string> set = options.set;
  if (options.steps > 0) set.push_back(fmt::format("train.steps={}", options.steps));
  if (options.ranks > 0) set.push_back(fmt::format("mesh.ranks={}", options.ranks));
  const StopOnSignal signals;
  RunSummary summary;
  const double foretold_s = options.mode.empty() ? 0 : choose(options, set);
  const auto tell = [&] {
    if (!options.mode.empty()) refit(options, summary);
    if (options.json) {
      fmt::print("{}\n", json_of(summary).dump(2, ' ', false, Json::error_handler_t::replace));
    } else {
      print(summary);
    }
    return summary.interrupted ? kInterrupted : kDone;
  };
  if (comm::launched_by_mpi()) {
    return run_under_mpi([&](comm::World& world) {
      const train::RunConfig config = config_for(options.config, set, world.size());
      summary = TrainingRun(config, options.resume, options.trace, {.world = &world}).run();
      return world.rank() == 0 ? tell() : kDone;
    });
  }
  const train::RunConfig config = train::read_run_config(options.config, set);
  const auto ranks = static_cast<int>(config.ranks());
  if (ranks == 1) {
    summary = TrainingRun(config, options.resume, options.trace, {.foretold_s = foretold_s}).run();
    return tell();
  }
  if (ranks > kMostThreadRanks) {
    config_error("{}: {} ranks are too many for threads of one process (at most {}); mpirun or srun can start them",
                 options.config, ranks, kMostThreadRanks);
  }
  run_on_threads(ranks, [&](comm::World& world) {
    RunSummary own = TrainingRun(config, options.resume, options.trace,
                                 {.world = &world, .threads = true, .foretold_s = foretold_s})
                         .run();
    if (world.rank() == 0) summary = std::move(own);
  });
  return tell();
}

}  // namespace heddle::cli
