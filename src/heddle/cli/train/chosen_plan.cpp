#include "heddle/cli/train/chosen_plan.h"

#include <cstdio>
#include <filesystem>
#include <memory>

#include "heddle/base/error.h"
#include "heddle/base/files/output_file.h"
#include "heddle/base/say.h"
#include "heddle/cli/train/found_settings.h"
#include "heddle/cli/train/train_profile.h"
#include "heddle/observe/terminal/doing.h"
#include "heddle/observe/units.h"
#include "heddle/planner/measure_machine.h"
#include "heddle/planner/profile_file.h"
#include "heddle/planner/rated_profile.h"
#include "heddle/planner/searched_plans.h"

namespace heddle::cli {

namespace {

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
  say(stderr, "{}\n", line);
}

planner::Propose proposals(const cost::MachineProfile& profile, const planner::JobPlaces& places) {
  return [&](const config::RunConfig& config, const std::set<std::string>& fixed) {
    return planner::searched_plans(config, fixed, profile, places);
  };
}

}  // namespace

ChosenPlan choose_by_mode(const TrainOptions& options, const std::vector<std::string>& set, comm::World* world) {
  constexpr double kMeasure_s = 45, kChoose_s = 30;
  ChosenPlan planned;
  planned.mode = planner::plan_mode_named(options.mode);
  if (options.resume) config_error("--mode: a run that goes on keeps its plan; leave out --mode with --resume");
  const std::vector<std::string> base = planner::base_settings(options.config, set);  // before anything is measured
  const std::string backend = config::read_run_config(options.config, with(set, base)).device.backend;
  planned.profile = world != nullptr ? job_profile(options, backend, *world, planned.places)
                                     : planner::machine_profile(options.profile, kMeasure_s, backend);
  train::RankExchange ranks(world);
  if (ranks.leads()) {
    auto doing = std::make_unique<observe::Doing>("simulating plans, for half a minute at most");
    planned.choice = planner::choose_plan(
        options.config, set,
        [&](const config::RunConfig& c, bool tried) {
          return planner::predict_config(c, planned.profile, planned.places, tried);
        },
        proposals(planned.profile, planned.places), planned.mode, kChoose_s);
    doing.reset();
    tell(options, planned.choice, base.empty());
  }
  planned.set = from_first_rank(ranks, planned.choice.chosen.set);
  return planned;
}

std::vector<std::string> learn(const TrainOptions& options, const std::vector<std::string>& set,
                               const ChosenPlan& planned, double& refitted_s, const session::FirstSteps& seen) {
  constexpr double kRefit_s = 5;
  const session::Refit found = session::refit(
      options.config, set, planned.choice, planned.mode, planned.profile, planned.places.over,
      [&](const config::RunConfig& c, const cost::MachineProfile& p) {
        return planner::predict_config(c, p, planned.places);
      },
      seen, kRefit_s);
  write_file(profile_path(options, found.profile.backend), planner::profile_text(found.profile));
  refitted_s = found.predicted_s;
  std::vector<std::string> lines{fmt::format("the profile refitted: {} predicted, {:+.1f} % off",
                                             observe::duration_text(found.predicted_s),
                                             100 * (found.predicted_s / seen.step_s - 1))};
  if (found.better) {
    const auto cost = [](const planner::Candidate& c) {
      return fmt::format("{}, {}", observe::duration_text(c.step_us * 1e-6),
                         observe::bytes_text(static_cast<double>(c.reserved_bytes)));
    };
    lines.push_back(fmt::format(
        "another plan is then better than this one ({}): {}, {}; a new run takes it", cost(found.chosen),
        found.better->set.empty() ? "as configured" : fmt::format("{}", fmt::join(found.better->set, " ")),
        cost(*found.better)));
  }
  return lines;
}

std::string remedy(const TrainOptions& options, const std::vector<std::string>& set,
                   const planner::JobPlaces& places) {
  constexpr double kChoose_s = 10;
  std::error_code ignored;
  const std::string path = profile_path(options, config::read_run_config(options.config, set).device.backend);
  const bool measured = std::filesystem::exists(path, ignored);
  const cost::MachineProfile profile = measured ? planner::read_profile(path) : planner::rated_profile();
  const planner::PredictFn predict = [&](const config::RunConfig& c, bool tried) {
    return planner::predict_config(c, profile, places, tried);
  };
  return planner::cheapest_remedy(options.config, set, predict, proposals(profile, places), kChoose_s) +
         (measured ? "" : " (about: heddle profile has not measured this machine)");
}

}  // namespace heddle::cli
