// heddle train.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "heddle/base/error.h"
#include "heddle/base/escaped.h"
#include "heddle/base/files/output_file.h"
#include "heddle/base/files/standard_input.h"
#include "heddle/cli/command.h"
#include "heddle/cli/commands.h"
#include "heddle/cli/line/told_config.h"
#include "heddle/comm/mpi_world.h"
#include "heddle/comm/threads/thread_world.h"
#include "heddle/device/host/paced_time.h"
#include "heddle/observe/terminal/doing.h"
#include "heddle/observe/units.h"
#include "heddle/planner/budget/memory_budget.h"
#include "heddle/planner/choose_plan.h"
#include "heddle/planner/measure_machine.h"
#include "heddle/planner/measured_rates.h"
#include "heddle/planner/memory/budget_share.h"
#include "heddle/planner/memory/state_home.h"
#include "heddle/planner/profile_file.h"
#include "heddle/planner/searched_plans.h"
#include "heddle/session/rank_run.h"
#include "heddle/session/refit.h"
#include "heddle/session/run_folder.h"
#include "heddle/session/training_run.h"
#include "heddle/train/agreement.h"

namespace heddle::cli {

namespace {

struct TrainOptions {
  std::string config;
  std::vector<std::string> set;  // key=value
  int64_t steps = 0;             // 0: as configured
  double minutes = 0;            // 0: as configured
  int64_t ranks = 0;             // 0: as configured, or as many as the launcher has started
  std::string mode;              // auto, save-memory, overlap: the plan is chosen; empty: as configured
  std::string profile;           // for that; empty: the one that `heddle profile` keeps
  bool resume = false;
  bool trace = false;
  std::string mlflow, prometheus;  // "": none
  int64_t log_every = 0;           // 0: as it suits whoever reads
  bool timestamps = false, verbose = false, quiet = false;
  bool json = false;
};

using Json = nlohmann::ordered_json;

constexpr int kMostThreadRanks = 256;

Json json_of(const session::RunSummary& s) {
  const observe::RunFigures& f = s.figures;
  const auto whole = [](const std::optional<double>& bytes) { return static_cast<int64_t>(bytes.value_or(0)); };
  Json json{{"folder", s.folder},
            {"checkpoint", s.checkpoint},
            {"report", s.report},
            {"first_step", s.first_step},
            {"steps", s.steps},
            {"interrupted", s.interrupted},
            {"seconds", f.elapsed_s.value_or(0)},
            {"trained_seconds", f.trained_s.value_or(0)},
            {"loss", f.loss.value_or(0)},
            {"held_out_loss", nullptr},
            {"tokens_per_s", f.tokens_per_s.value_or(0)},
            {"flops_per_s", f.flops_per_s.value_or(0)},
            {"predicted_reserved_bytes", whole(f.predicted_reserved_bytes)},
            {"reserved_bytes", whole(f.reserved_bytes)},
            {"grown_beyond_forecast_bytes", whole(f.grown_bytes)},
            {"updates_ahead_of_norm", s.updates_ahead},
            {"updates_taken_back", s.updates_taken_back},
            {"skipped_steps", s.skipped},
            {"rolled_back", s.gone_back}};
  if (s.first_steps_s > 0) {
    json["step_foretold_seconds"] = s.foretold_s;
    json["first_steps_seconds"] = s.first_steps_s;
    if (s.refitted_s > 0) json["step_foretold_refitted_seconds"] = s.refitted_s;
  }
  if (!s.trace.empty()) json["trace"] = s.trace;
  if (f.held_out_loss) json["held_out_loss"] = *f.held_out_loss;
  return json;
}

// What a run by the clock would come to that is longer.
std::string longer_text(const session::RunSummary& s, const std::string& config) {
  constexpr double times = 10.0 / 3;
  const double minutes = s.length_s / 60 * times;
  return fmt::format(
      "longer      heddle train {} --resume --minutes {}: about {} steps in all, {} tokens in place of {}; the "
      "text "
      "has {}\n",
      config, minutes < 10 ? fmt::format("{:.2g}", minutes) : fmt::format("{:.0f}", minutes),
      observe::grouped_text(std::llround(static_cast<double>(s.steps) * times)),
      observe::count_text(static_cast<double>(s.tokens) * times),
      observe::count_text(static_cast<double>(s.tokens)), observe::count_text(static_cast<double>(s.text_tokens)));
}

void print(const session::RunSummary& s, const std::string& config) {
  const observe::RunFigures& f = s.figures;
  fmt::print("{} after {} steps in {}: loss {}", s.interrupted ? "stopped" : "done", s.steps,
             observe::duration_text(f.elapsed_s.value_or(0)), observe::loss_text(f.loss.value_or(0)));
  if (f.held_out_loss) fmt::print(", held-out {}", observe::loss_text(*f.held_out_loss));
  fmt::print("\nmedian {}, {}; arena {} (predicted {}{})\n", observe::tokens_rate_text(f.tokens_per_s.value_or(0)),
             observe::flops_rate_text(f.flops_per_s.value_or(0)), observe::bytes_text(f.reserved_bytes.value_or(0)),
             observe::bytes_text(f.predicted_reserved_bytes.value_or(0)),
             f.grown_bytes ? fmt::format("; {} beyond the forecast", observe::bytes_text(*f.grown_bytes)) : "");
  fmt::print("report      {}\ncheckpoint  {}\n", s.report.empty() ? "could not be written" : s.report,
             s.checkpoint);
  if (!s.trace.empty()) fmt::print("trace       {}  (open it at https://ui.perfetto.dev)\n", s.trace);
  fmt::print("{}", s.interrupted ? "go on with --resume\n"
                                 : fmt::format("try         heddle generate {} --prompt \"The \"\n", s.folder));
  if (!s.interrupted && s.length_s > 0) fmt::print("{}", longer_text(s, config));
}

// The settings of a job whose launcher has decided on the number of ranks.
std::vector<std::string> set_for(const std::string& path, std::vector<std::string> set, int ranks) {
  const config::RunConfig config = config::read_run_config(path, set);
  if (config.mesh_ranks != 0 && config.mesh_ranks != ranks) {
    config_error("{}: mesh.ranks is {}, the launcher has started {} processes", path, config.mesh_ranks, ranks);
  }
  set.push_back(fmt::format("mesh.ranks={}", ranks));
  return set;
}

// What all ranks of a launcher's job must be told alike. Threads and memory are a rank's own.
train::Told told(const TrainOptions& options, std::vector<std::string> set) {
  if (!options.mode.empty()) {  // as configured it need be no plan yet
    const std::vector<std::string> base = planner::base_settings(options.config, set);
    set.insert(set.end(), base.begin(), base.end());
  }
  const config::RunConfig config = config::read_run_config(options.config, set);
  train::Told all{{"heddle", HEDDLE_VERSION " " HEDDLE_BUILD},
                  {"--mode", options.mode},
                  {"--resume", options.resume ? "given" : "not given"},
                  {"--trace", options.trace ? "given" : "not given"},
                  {"device.dtype", std::string(name_of(train::resolved_dtype(config)))}};
  for (const config::Setting& s : config::settings()) {
    if (s.key == "device.threads" || s.key == "device.memory_bytes" || s.key == "device.dtype") continue;
    if (!s.present || s.present(config)) all.emplace_back(s.key, s.text_of(s.get(config)));
  }
  return all;
}

// What the configuration says that is hardly meant, once.
void warn(const TrainOptions& options, std::vector<std::string> set) {
  if (!options.mode.empty()) {  // as above
    const std::vector<std::string> base = planner::base_settings(options.config, set);
    set.insert(set.end(), base.begin(), base.end());
  }
  told_config(options.config, set);
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    lines.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return lines;
}

std::string profile_path(const TrainOptions& options) {
  return options.profile.empty() ? planner::machine_profile_path() : options.profile;
}

// The profile with the times of the job's links. All ranks call it together.
cost::MachineProfile job_profile(const TrainOptions& options, comm::World& world, planner::JobPlaces& places) {
  constexpr double kMeasure_s = 45;
  train::RankExchange ranks(&world);
  cost::MachineProfile profile;
  if (ranks.leads()) profile = planner::machine_profile(options.profile, kMeasure_s);
  places = session::places_of(world, profile.cores);
  const bool known = std::any_of(profile.links.begin(), profile.links.end(), [&](const cost::LinkTime& l) {
    return l.over == places.over && l.ranks == world.size();
  });
  if (world.size() == 1 || !ranks.any(ranks.leads() && !known)) return profile;
  const std::vector<cost::LinkTime> found = planner::measure_links(world, places.over);
  if (!ranks.leads()) return profile;
  std::erase_if(profile.links, [&](const cost::LinkTime& l) {
    return l.over == places.over &&
           std::any_of(found.begin(), found.end(), [&](const cost::LinkTime& f) { return f.ranks == l.ranks; });
  });
  profile.links.insert(profile.links.end(), found.begin(), found.end());
  write_file(profile_path(options), planner::profile_text(profile));
  return profile;
}

// The profile of this machine where there is one. What can't be read is told and does without.
std::optional<cost::MachineProfile> known_profile(const TrainOptions& options) {
  std::error_code ignored;
  if (!std::filesystem::exists(profile_path(options), ignored)) return std::nullopt;
  try {
    return planner::read_profile(profile_path(options));
  } catch (const ConfigError& error) {
    if (!options.profile.empty()) throw;
    fmt::print(stderr, "heddle: warning: {}; weaving and offload go by nominal rates\n", escaped(error.what()));
    return std::nullopt;
  }
}

// The rates by which weaving and offload decide, as settings: those that the run was begun with, else those of the
// machine's profile. Rank 0 tells the others, so that all lower the same program.
std::vector<std::string> rates_of(const TrainOptions& options, const std::vector<std::string>& set,
                                  const planner::JobPlaces& places, const cost::MachineProfile* measured,
                                  comm::World* world) {
  train::RankExchange ranks(world);
  std::vector<std::string> rates;
  if (ranks.leads()) {
    const config::RunConfig config = config::read_run_config(options.config, set);
    const std::string begun = options.resume ? session::path_of_existing_run(config) : "";
    if (!begun.empty()) {
      config::RunConfig kept = config;
      const config::RunConfig was = config::read_run_config(session::RunFolder{begun}.config());
      for (const std::string& key : planner::rate_keys()) {
        const config::Setting& s = *config::find_setting(key);
        if (std::get<double>(s.get(config)) == 0) s.set(kept, s.get(was));
      }
      rates = planner::rate_settings(config, kept);
    } else if (measured != nullptr) {
      rates = planner::rate_settings(config, planner::rated(config, *measured, places));
    } else if (const std::optional<cost::MachineProfile> known = known_profile(options)) {
      rates = planner::rate_settings(config, planner::rated(config, *known, places));
    }
  }
  return lines_of(ranks.told_by_first(fmt::format("{}", fmt::join(rates, "\n"))));
}

// Where optimizer state lies, if that is left open, as settings: as the run was begun with, else by cost. Rank 0
// works it out and tells the others.
std::vector<std::string> home_of_state(const TrainOptions& options, const std::vector<std::string>& set,
                                       comm::World* world) {
  train::RankExchange ranks(world);
  std::vector<std::string> settings;
  if (ranks.leads()) {
    config::RunConfig config = config::read_run_config(options.config, set);
    const std::string begun = options.resume ? session::path_of_existing_run(config) : "";
    const config::Setting& home = *config::find_setting("memory.optimizer");
    if (config.plan.memory.optimizer == plan::StateHome::cheapest && !begun.empty()) {
      const config::Value was = home.get(config::read_run_config(session::RunFolder{begun}.config()));
      home.set(config, was);
      settings = {home.key + "=" + plan::text_of(was)};
    }
    for (std::string& setting :
         planner::home_settings(config, [](const std::string& line) { fmt::print(stderr, "{}\n", line); }))
      settings.push_back(std::move(setting));
  }
  return lines_of(ranks.told_by_first(fmt::format("{}", fmt::join(settings, "\n"))));
}

// A budget that is a share of the memory, in bytes. A run of threads is prepared by one for all of them.
std::vector<std::string> budget_of_share(const TrainOptions& options, const std::vector<std::string>& set,
                                         comm::World* world) {
  const config::RunConfig config = config::read_run_config(options.config, set);
  train::Sharing sharing = session::sharing_of(world);
  if (world == nullptr) sharing.memory = config.ranks();
  train::RankExchange ranks(world);
  std::vector<std::string> settings;
  if (ranks.leads())
    settings =
        planner::share_settings(config, sharing, [](const std::string& line) { fmt::print(stderr, "{}\n", line); });
  return lines_of(ranks.told_by_first(fmt::format("{}", fmt::join(settings, "\n"))));
}

// What keeps the run within memory.budget, as settings; rank 0 works it out and tells the others.
std::vector<std::string> kept_to_budget(const TrainOptions& options, const std::vector<std::string>& set,
                                        comm::World* world) {
  train::RankExchange ranks(world);
  std::vector<std::string> settings;
  if (ranks.leads())
    settings = planner::budget_settings(config::read_run_config(options.config, set),
                                        [](const std::string& line) { fmt::print(stderr, "{}\n", line); });
  return lines_of(ranks.told_by_first(fmt::format("{}", fmt::join(settings, "\n"))));
}

// What --mode comes to. Rank 0 alone has more than the settings.
struct Planned {
  std::vector<std::string> set;  // of the plan, over the user's
  planner::PlanMode mode = planner::PlanMode::automatic;
  planner::JobPlaces places;
  cost::MachineProfile profile;
  planner::PlanChoice choice;
};

void tell(const TrainOptions& options, const planner::PlanChoice& choice, bool is_plan) {
  const auto cost = [](const planner::Candidate& c) {
    return fmt::format("{}, {}", observe::duration_text(c.step_us * 1e-6),
                       observe::bytes_text(static_cast<double>(c.reserved_bytes)));
  };
  std::string line = fmt::format(
      "mode {}: {} plans simulated, {} do not fit; {}: a step of {} a rank", options.mode, choice.all.size(),
      choice.refused,
      choice.chosen.set.empty() ? "as configured" : fmt::format("{}", fmt::join(choice.chosen.set, " ")),
      cost(choice.chosen));
  if (!is_plan || !choice.configured.fits()) {
    line += is_plan ? " (as configured it does not fit)" : " (as configured it is no plan)";
  } else if (!choice.chosen.set.empty()) {
    line += fmt::format(" (as configured {})", cost(choice.configured));
  }
  fmt::print(stderr, "{}\n", line);
}

planner::Propose proposals(const cost::MachineProfile& profile, const planner::JobPlaces& places) {
  return [&](const config::RunConfig& config, const std::set<std::string>& fixed) {
    return planner::searched_plans(config, fixed, profile, places);
  };
}

// Chooses the plan of `ranks` ranks and tells which: of a launcher's job all of them call it together.
Planned choose(const TrainOptions& options, const std::vector<std::string>& set, comm::World* world) {
  constexpr double kMeasure_s = 45, kChoose_s = 30;
  Planned planned;
  planned.mode = planner::plan_mode_named(options.mode);
  if (options.resume) config_error("--mode: a run that goes on keeps its plan; leave out --mode with --resume");
  const std::vector<std::string> base = planner::base_settings(options.config, set);  // before anything is measured
  planned.profile = world != nullptr ? job_profile(options, *world, planned.places)
                                     : planner::machine_profile(options.profile, kMeasure_s);
  train::RankExchange ranks(world);
  if (ranks.leads()) {
    auto doing = std::make_unique<observe::Doing>("simulating plans, for half a minute at most");
    planned.choice = planner::choose_plan(
        options.config, set,
        [&](const config::RunConfig& c, bool tried) {
          return planner::forecast_config(c, planned.profile, planned.places, tried);
        },
        proposals(planned.profile, planned.places), planned.mode, kChoose_s);
    doing.reset();
    tell(options, planned.choice, base.empty());
  }
  planned.set = lines_of(ranks.told_by_first(fmt::format("{}", fmt::join(planned.choice.chosen.set, "\n"))));
  return planned;
}

// The profile learns what the first steps took; lines for the log.
std::vector<std::string> learn(const TrainOptions& options, const std::vector<std::string>& set,
                               const Planned& planned, double& refitted_s, const session::FirstSteps& seen) {
  constexpr double kRefit_s = 5;
  const session::Refit found = session::refit(
      options.config, set, planned.choice, planned.mode, planned.profile, planned.places.over,
      [&](const config::RunConfig& c, const cost::MachineProfile& p) {
        return planner::forecast_config(c, p, planned.places);
      },
      seen, kRefit_s);
  write_file(profile_path(options), planner::profile_text(found.profile));
  refitted_s = found.foretold_s;
  std::vector<std::string> lines{fmt::format("the profile refitted: {} foretold, {:+.1f} % off",
                                             observe::duration_text(found.foretold_s),
                                             100 * (found.foretold_s / seen.step_s - 1))};
  if (found.better) {
    const auto cost = [](const planner::Candidate& c) {
      return fmt::format("{}, {}", observe::duration_text(c.step_us * 1e-6),
                         observe::bytes_text(static_cast<double>(c.reserved_bytes)));
    };
    lines.push_back(fmt::format(
        "by it another plan is better than this one ({}): {}, {}; a new run takes it", cost(found.chosen),
        found.better->set.empty() ? "as configured" : fmt::format("{}", fmt::join(found.better->set, " ")),
        cost(*found.better)));
  }
  return lines;
}

// Of a machine that nobody has measured: rated figures of a core, for ratios.
cost::MachineProfile rated_profile() {
  cost::MachineProfile profile;
  profile.cores = device::allowed_cores();
  profile.bf16_flops_per_s = 2e11 * profile.cores;
  profile.f32_flops_per_s = profile.f64_flops_per_s = 5e10 * profile.cores;
  profile.copy_bytes_per_s = 1e10;
  profile.launch_us = 2;
  profile.enqueue_us = 1;
  return profile;
}

// What would make a configuration fit; `places` of its ranks.
std::string remedy(const TrainOptions& options, const std::vector<std::string>& set,
                   const planner::JobPlaces& places) {
  constexpr double kChoose_s = 10;
  std::error_code ignored;
  const bool measured = std::filesystem::exists(profile_path(options), ignored);
  const cost::MachineProfile profile = measured ? planner::read_profile(profile_path(options)) : rated_profile();
  const planner::Foresee foresee = [&](const config::RunConfig& c, bool tried) {
    return planner::forecast_config(c, profile, places, tried);
  };
  return planner::cheapest_remedy(options.config, set, foresee, proposals(profile, places), kChoose_s) +
         (measured ? "" : " (about: heddle profile has not measured this machine)");
}

session::Telling telling_of(const TrainOptions& options) {
  session::Telling telling{.trace = options.trace, .mlflow = options.mlflow, .prometheus = options.prometheus};
  telling.progress.line_every_steps = options.verbose ? 1 : options.log_every;
  telling.progress.timestamps = options.timestamps;
  telling.progress.quiet = options.quiet;
  return telling;
}

int train(const TrainOptions& options) {
  std::vector<std::string> set = options.set;
  if (options.steps > 0) set.push_back(fmt::format("train.steps={}", options.steps));
  if (options.minutes > 0) set.push_back(fmt::format("train.minutes={}", options.minutes));
  if (options.ranks > 0) set.push_back(fmt::format("mesh.ranks={}", options.ranks));
  const session::Signals signals;
  session::Signals::answer("the run is prepared and its first step not begun; asked again it ends at once",
                           "no step was done, nothing is lost");
  session::RunSummary summary;
  const auto tell_summary = [&] {
    if (options.json) {
      fmt::print("{}\n", json_of(summary).dump(2, ' ', false, Json::error_handler_t::replace));
    } else {
      print(summary, options.config);
    }
    return summary.interrupted ? kInterrupted : kDone;
  };
  // What rank 0 finds out for all: the rates of this machine, and what keeps the run within its budget.
  const auto found_for = [&](std::vector<std::string> all, const Planned& planned,
                             const cost::MachineProfile* measured, comm::World* world) {
    std::vector<std::string> found = rates_of(options, all, planned.places, measured, world);
    all.insert(all.end(), found.begin(), found.end());
    for (const auto& more : {budget_of_share, home_of_state, kept_to_budget}) {
      for (const std::string& setting : more(options, all, world)) {
        found.push_back(setting);
        all.push_back(setting);
      }
    }
    return found;
  };
  // One rank's part, whichever way it was started.
  const auto run = [&](const Planned& planned, const std::vector<std::string>& found, comm::World* world,
                       bool threads) {
    const bool leads = world == nullptr || world->rank() == 0;
    std::vector<std::string> all = set;
    all.insert(all.end(), planned.set.begin(), planned.set.end());
    all.insert(all.end(), found.begin(), found.end());
    double refitted_s = 0;
    session::RankPlace place;
    place.world = world;
    place.threads = threads;
    place.remedy = [&] { return remedy(options, all, planned.places); };
    if (!options.mode.empty() && leads) {
      place.foretold_s = planned.choice.chosen.step_us * 1e-6;
      place.learn = [&](const session::FirstSteps& seen) { return learn(options, set, planned, refitted_s, seen); };
    }
    session::RunSummary own = session::TrainingRun(config::read_run_config(options.config, all), options.resume,
                                                   telling_of(options), place)
                                  .run();
    own.refitted_s = refitted_s;
    if (leads) summary = std::move(own);
  };
  if (comm::launched_by_mpi()) {
    if (options.config == kStandardInput)
      config_error("-: of ranks under MPI only one has the standard input; name a file");
    return session::run_under_mpi([&](comm::World& world) {
      if (world.rank() != 0) session::Signals::answer("", "");
      set = set_for(options.config, set, world.size());
      train::RankExchange ranks(&world);
      train::agree(ranks, told(options, set));
      if (ranks.leads()) warn(options, set);
      Planned planned;
      if (options.mode.empty()) {
        planned.places = session::places_of(world, 0);
      } else {
        planned = choose(options, set, &world);
      }
      std::vector<std::string> all = set;
      all.insert(all.end(), planned.set.begin(), planned.set.end());
      const cost::MachineProfile* measured = options.mode.empty() ? nullptr : &planned.profile;
      run(planned, found_for(all, planned, measured, &world), &world, false);
      return world.rank() == 0 ? tell_summary() : kDone;
    });
  }
  warn(options, set);
  const Planned planned = options.mode.empty() ? Planned{} : choose(options, set, nullptr);
  std::vector<std::string> all = set;
  all.insert(all.end(), planned.set.begin(), planned.set.end());
  const auto ranks = static_cast<int>(config::read_run_config(options.config, all).ranks());
  if (ranks > kMostThreadRanks) {
    config_error("{}: {} ranks are too many for threads of one process (at most {}); mpirun or srun can start them",
                 options.config, ranks, kMostThreadRanks);
  }
  const cost::MachineProfile* measured = options.mode.empty() ? nullptr : &planned.profile;
  const std::vector<std::string> found = found_for(all, planned, measured, nullptr);
  if (ranks == 1) {
    run(planned, found, nullptr, false);
  } else {
    comm::run_on_threads(ranks, [&](comm::World& world) { run(planned, found, &world, true); });
  }
  return tell_summary();
}

}  // namespace

void add_train(Commands& all) {
  auto [command, options] =
      add_command(all, "train", "Train a model; examples/demo.toml is a small complete one", train);
  command.option("CONFIG", options.config, "The configuration file; - is the standard input").required();
  add_set(command, options.set);
  command.option("--steps", options.steps, "Steps of the whole run, the same as --set train.steps=N").from(1);
  command
      .option("--minutes", options.minutes,
              "Minutes in training steps of the whole run, the same as --set train.minutes=N")
      .above_zero();
  command
      .option("--ranks", options.ranks,
              "Ranks as threads of this process, the same as --set mesh.ranks=N; under mpirun or srun there are as "
              "many as were started")
      .from(1);
  command
      .option("--mode", options.mode,
              "Choose the plan by simulating candidates on this machine: the fastest (auto), the least memory "
              "(save-memory) or the least exposed communication (overlap) within 1.3 times of it")
      .called("MODE");
  command
      .option("--profile", options.profile,
              "What `heddle profile --out` wrote: for --mode, and for the rates that weaving and offload go by")
      .called("FILE");
  command.option("--resume", options.resume, "Go on from the newest whole checkpoint of the run");
  command.option("--trace", options.trace, "Also write the ops of step train.trace_step as a Perfetto trace");
  command.option("--mlflow", options.mlflow, "Also write the figures into this folder of MLflow (mlruns)")
      .called("FOLDER");
  command
      .option("--prometheus", options.prometheus,
              "Serve the last step's figures at this address, as 127.0.0.1:9464; nothing listens otherwise")
      .called("ADDRESS");
  command.option("--log-every", options.log_every, "Tell every so many steps in a line").from(1);
  command.option("--verbose", options.verbose, "Tell every step in a line").excludes("--log-every");
  command.option("--quiet", options.quiet, "Tell nothing but warnings and what the run came to")
      .excludes("--verbose")
      .excludes("--log-every");
  command.option("--timestamps", options.timestamps, "Begin every line of the log with date and time, UTC");
  add_json(command, options.json);
}

}  // namespace heddle::cli
