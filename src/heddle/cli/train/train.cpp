// heddle train.
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <tuple>

#include "heddle/base/error.h"
#include "heddle/base/files/fence.h"
#include "heddle/base/files/standard_input.h"
#include "heddle/base/say.h"
#include "heddle/cli/command.h"
#include "heddle/cli/commands.h"
#include "heddle/cli/line/command_config.h"
#include "heddle/cli/train/chosen_plan.h"
#include "heddle/cli/train/found_settings.h"
#include "heddle/cli/train/released_start.h"
#include "heddle/comm/mpi_world.h"
#include "heddle/comm/threads/thread_world.h"
#include "heddle/device/device.h"
#include "heddle/observe/units.h"
#include "heddle/session/rank_run.h"
#include "heddle/session/ranks/rank_calls.h"
#include "heddle/session/signals.h"
#include "heddle/session/training_run.h"
#include "heddle/train/agreement.h"

namespace heddle::cli {

namespace {

using Json = nlohmann::ordered_json;

constexpr int kMostThreadRanks = 256;

Json json_of(const session::RunSummary& s) {
  Json json{{"folder", s.folder},          {"checkpoint", s.checkpoint},
            {"report", s.report},          {"weights_digest", s.weights_digest},
            {"first_step", s.first_step},  {"steps", s.steps},
            {"interrupted", s.interrupted}};
  json.update(Json::parse(observe::json_of(s.figures, observe::JsonOf::all)));
  if (!s.slow_ranks.empty()) {
    json["slow_ranks"] = Json::parse(s.slow_ranks);
    json["slow_links"] = Json::parse(s.slow_links);
  }
  if (!s.trace.empty()) json["trace"] = s.trace;
  return json;
}

// Text about what a longer run by the clock would come to.
std::string longer_text(const session::RunSummary& s, const std::string& config) {
  constexpr double times = 10.0 / 3;
  const double minutes = s.length_s / 60 * times;
  return fmt::format(
      "longer      heddle train {} --resume --minutes {}: about {} steps in all, {} tokens in place of {}; the "
      "text has {}\n",
      config, minutes < 10 ? fmt::format("{:.2g}", minutes) : fmt::format("{:.0f}", minutes),
      observe::grouped_text(std::llround(static_cast<double>(s.steps) * times)),
      observe::count_text(static_cast<double>(s.tokens) * times),
      observe::count_text(static_cast<double>(s.tokens)), observe::count_text(static_cast<double>(s.text_tokens)));
}

void print(const session::RunSummary& s, const std::string& config) {
  namespace figures = observe::figures;
  const observe::RunFigures& f = s.figures;
  const auto text = [&](const observe::Figure& row) { return text_of(row, f.get(row, 0)); };
  say("{} after {} steps in {}: loss {}", s.interrupted ? "stopped" : "done", s.steps,
      text(figures::kElapsedSeconds), text(figures::kLoss));
  if (f.has(figures::kHeldOutLoss)) say(", held-out {}", text(figures::kHeldOutLoss));
  say("\nmedian {}, {}; arena {} (predicted {}{})\n", text(figures::kTokensPerSecond),
      text(figures::kFlopsPerSecond), text(figures::kArenaReservedPeak), text(figures::kPredictedReserved),
      f.has(figures::kGrownBeyondPrediction)
          ? fmt::format("; {} beyond the prediction", text(figures::kGrownBeyondPrediction))
          : "");
  for (const observe::FigureGroup* group : figures::kGroups)
    if (const std::string line = observe::line_of(f, group); !line.empty()) say("{:<12}{}\n", group->key, line);
  say("report      {}\ncheckpoint  {}\n", s.report.empty() ? "could not be written" : s.report, s.checkpoint);
  if (!s.trace.empty()) say("trace       {}  (open it at https://ui.perfetto.dev)\n", s.trace);
  say("{}", s.interrupted ? "go on with --resume\n"
                          : fmt::format("try         heddle generate {} --prompt \"The \"\n", s.folder));
  if (!s.interrupted && s.length_s > 0) say("{}", longer_text(s, config));
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

// Settings with which the configuration can be read before a mode has chosen its plan: as it stands it need be
// none.
std::vector<std::string> readable(const TrainOptions& options, const std::vector<std::string>& set) {
  return options.mode.empty() ? set : with(set, planner::base_settings(options.config, set));
}

// Settings that must be alike on all ranks of a launcher's job. Threads and memory are a rank's own.
train::NamedInputs agreed_inputs(const TrainOptions& options, const std::vector<std::string>& set) {
  const config::RunConfig config = config::read_run_config(options.config, readable(options, set));
  train::NamedInputs all{{"heddle", HEDDLE_VERSION " " HEDDLE_BUILD},
                         {"--mode", options.mode},
                         {"--resume", options.resume ? "given" : "not given"},
                         {"--trace", options.trace ? "given" : "not given"},
                         {"device.dtype", std::string(name_of(train::resolved_dtype(config)))}};
  for (auto& [key, value] : config::setting_texts(config)) {
    if (key == "device.threads" || key == "device.memory_bytes" || key == "device.dtype") continue;
    all.emplace_back(std::move(key), std::move(value));
  }
  return all;
}

session::Telling telling_of(const TrainOptions& options) {
  session::Telling telling{.trace = options.trace, .mlflow = options.mlflow, .prometheus = options.prometheus};
  telling.progress.line_every_steps = options.verbose ? 1 : options.log_every;
  telling.progress.timestamps = options.timestamps;
  telling.progress.quiet = options.quiet;
  return telling;
}

// The options with a configuration where the line names a released model.
TrainOptions with_config(TrainOptions options) {
  if (const std::string folder = released_folder(options.config); !folder.empty()) {
    options.config = config_of_released(options, folder, !comm::launched_by_mpi());
    return options;
  }
  std::error_code error;
  if (options.config != kStandardInput && !options.config.ends_with(".toml") &&
      !std::filesystem::exists(options.config, error))
    config_error("train: no file or folder '{}'; a name on the Hub is OWNER/MODEL[@REVISION]",
                 options.config.substr(0, 200));
  if ((!options.data.empty() || options.lora) && std::filesystem::is_directory(options.config, error))
    config_error("train: the folder {} holds no released model (config.json)", options.config);
  for (const auto& [flag, given, key] : {std::tuple("--data", !options.data.empty(), "data.source"),
                                         std::tuple("--lora", options.lora, "lora.rank")})
    if (given)
      config_error("train: {} goes with a released model in place of CONFIG; a configuration has {} (--set {}=…)",
                   flag, key, key);
  return options;
}

int train(const TrainOptions& given) {
  const TrainOptions options = with_config(given);
  std::vector<std::string> set = options.set;
  if (options.steps > 0) set.push_back(fmt::format("train.steps={}", options.steps));
  if (options.minutes > 0) set.push_back(fmt::format("train.minutes={}", options.minutes));
  if (options.ranks > 0) set.push_back(fmt::format("mesh.ranks={}", options.ranks));
  session::end_with_parent();
  const session::Signals signals;
  session::Signals::end_at_once("the run was being prepared; no step was done, nothing is lost");
  session::RunSummary summary;
  const auto tell_summary = [&] {
    if (options.json) {
      say("{}\n", json_of(summary).dump(2, ' ', false, Json::error_handler_t::replace));
    } else {
      print(summary, options.config);
      forget_unheard();  // the status says what became of the run
    }
    return summary.interrupted ? kInterrupted : kDone;
  };
  const auto found_for = [&](const ChosenPlan& planned, comm::World* world) {
    return found_settings(options, with(set, planned.set), planned.places,
                          options.mode.empty() ? nullptr : &planned.profile, world);
  };
  // One rank's part, whichever way it was started.
  const auto run = [&](const ChosenPlan& planned, const std::vector<std::string>& found, comm::World* world,
                       bool threads) {
    await_turn(world != nullptr ? world->size() : 1);
    const bool leads = world == nullptr || world->rank() == 0;
    const std::vector<std::string> all = with(with(set, planned.set), found);
    double refitted_s = 0;
    session::RankCalls calls(world);
    session::RankPlace place;
    place.world = calls.world();
    place.calls = calls.log();
    place.threads = threads;
    place.remedy = [&] { return remedy(options, all, planned.places); };
    if (!options.mode.empty() && leads) {
      place.predicted_s = planned.choice.chosen.step_us * 1e-6;
      place.learn = [&](const session::FirstSteps& seen) { return learn(options, set, planned, refitted_s, seen); };
    }
    session::RunSummary own = calls.recorded([&] {
      return session::TrainingRun(config::read_run_config(options.config, all), options.resume, telling_of(options),
                                  place)
          .run();
    });
    calls.end();
    if (refitted_s > 0) own.figures.set(observe::figures::kStepRefitted, refitted_s);
    if (leads) summary = std::move(own);
  };
  if (comm::launched_by_mpi()) {
    if (options.config == kStandardInput)
      config_error("-: of ranks under MPI only one has the standard input; name a file");
    return session::run_under_mpi([&](comm::World& world) {
      if (world.rank() != 0) session::Signals::end_at_once("");
      set = set_for(options.config, set, world.size());
      train::RankExchange ranks(&world);
      train::agree(ranks, agreed_inputs(options, set));
      command_config(options.config, readable(options, set),
                     {.tell = ranks.leads(), .is_plan = options.mode.empty()});
      ChosenPlan planned;
      if (options.mode.empty()) {
        planned.places = session::places_of(world, 0);
      } else {
        planned = choose_by_mode(options, set, &world);
      }
      run(planned, found_for(planned, &world), &world, false);
      return world.rank() == 0 ? tell_summary() : kDone;
    });
  }
  command_config(options.config, readable(options, set), {.is_plan = options.mode.empty()});
  // Ahead of all that may ask a device about a plan.
  device::tell_cuda_driver(config::read_run_config(options.config, readable(options, set)).ranks() > 1);
  const ChosenPlan planned = options.mode.empty() ? ChosenPlan{} : choose_by_mode(options, set, nullptr);
  const auto ranks = static_cast<int>(config::read_run_config(options.config, with(set, planned.set)).ranks());
  if (ranks > kMostThreadRanks) {
    config_error("{}: {} ranks are too many for threads of one process (at most {}); mpirun or srun can start them",
                 options.config, ranks, kMostThreadRanks);
  }
  const std::vector<std::string> found = found_for(planned, nullptr);
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
  command
      .option("CONFIG", options.config,
              "The configuration file; - is the standard input. Or a released model: its folder, or its name on "
              "the Hugging Face Hub where the cache holds it")
      .required();
  command.option("--data", options.data, "For a released model: the samples or text that it learns").called("FILE");
  command.option("--lora", options.lora, "For a released model: train adapters beside its frozen weights");
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
              "Profile for --mode and for the rates of overlap and offload, written by `heddle profile --out`")
      .called("FILE");
  command.option("--resume", options.resume, "Go on from the newest whole checkpoint of the run");
  command.option("--trace", options.trace, "Also write the ops of step train.trace_step as a Perfetto trace");
  command.option("--mlflow", options.mlflow, "Also write the figures into this folder of MLflow (mlruns)")
      .called("FOLDER");
  command
      .option("--prometheus", options.prometheus,
              "Serve the last step's figures at this address, as 127.0.0.1:9464; nothing listens otherwise")
      .called("ADDRESS");
  command.option("--log-every", options.log_every, "Print a line every N steps").from(1);
  command.option("--verbose", options.verbose, "Print a line for every step").excludes("--log-every");
  command.option("--quiet", options.quiet, "Print only warnings and the run's result")
      .excludes("--verbose")
      .excludes("--log-every");
  command.option("--timestamps", options.timestamps, "Begin every line of the log with date and time, UTC");
  add_json(command, options.json);
}

}  // namespace heddle::cli
