#include "heddle/cli/train/found_settings.h"

#include <algorithm>
#include <cstdio>

#include "heddle/base/say.h"
#include "heddle/cli/train/train_profile.h"
#include "heddle/config/run_config.h"
#include "heddle/planner/budget/memory_budget.h"
#include "heddle/planner/measured_rates.h"
#include "heddle/planner/memory/budget_share.h"
#include "heddle/planner/memory/state_residency.h"
#include "heddle/session/rank_run.h"
#include "heddle/session/run_folder.h"

namespace heddle::cli {

namespace {

void tell_found(const std::string& line) { say(stderr, "{}\n", line); }

// The configuration that the resumed run was begun with.
std::optional<config::RunConfig> begun_with(const TrainOptions& options, const config::RunConfig& config) {
  const std::string begun = options.resume ? session::path_of_existing_run(config) : "";
  if (begun.empty()) return std::nullopt;
  return config::read_run_config(session::RunFolder{begun}.config());
}

// Rates that the run was begun with, else those of the machine's profile.
std::vector<std::string> rates_of(const TrainOptions& options, const config::RunConfig& config,
                                  const planner::JobPlaces& places, const cost::MachineProfile* measured) {
  if (const std::optional<config::RunConfig> was = begun_with(options, config)) {
    config::RunConfig kept = config;
    for (const std::string& key : planner::rate_keys()) {
      const config::Setting& s = *config::find_setting(key);
      if (s.get(config) == s.get({})) s.set(kept, s.get(*was));
    }
    return planner::rate_settings(config, kept);
  }
  const std::optional<cost::MachineProfile> known =
      measured != nullptr ? *measured : known_profile(options, config.device.backend);
  if (!known) return {};
  return planner::rate_settings(config, planner::rated(config, *known, places));
}

// The home of optimizer state, if that is left open: as the run was begun with, else by cost.
std::vector<std::string> choose_residency(const TrainOptions& options, config::RunConfig config) {
  std::vector<std::string> settings;
  if (config.plan.memory.optimizer == plan::StateResidency::cheapest) {
    if (const std::optional<config::RunConfig> begun = begun_with(options, config)) {
      const config::Setting& home = *config::find_setting("memory.optimizer");
      const config::Value was = home.get(*begun);
      home.set(config, was);
      settings = {home.key + "=" + plan::text_of(was)};
    }
  }
  return with(std::move(settings), planner::residency_settings(config, tell_found));
}

}  // namespace

std::vector<std::string> from_first_rank(train::RankExchange& ranks, const std::vector<std::string>& settings) {
  const std::string text = ranks.from_first_rank(fmt::format("{}", fmt::join(settings, "\n")));
  std::vector<std::string> lines;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    lines.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return lines;
}

std::vector<std::string> found_settings(const TrainOptions& options, const std::vector<std::string>& set,
                                        const planner::JobPlaces& places, const cost::MachineProfile* measured,
                                        comm::World* world) {
  train::Sharing sharing = session::sharing_of(world);
  train::RankExchange ranks(world);
  std::vector<std::string> found;
  if (ranks.leads()) {
    const auto now = [&] { return config::read_run_config(options.config, with(set, found)); };
    // A run of threads is prepared by one for all of them.
    if (world == nullptr) sharing.memory = now().ranks();
    found = rates_of(options, now(), places, measured);
    found = with(std::move(found), planner::share_settings(now(), sharing, tell_found));
    found = with(std::move(found), choose_residency(options, now()));
    found = with(std::move(found), planner::budget_settings(now(), tell_found));
  }
  return from_first_rank(ranks, found);
}

}  // namespace heddle::cli
