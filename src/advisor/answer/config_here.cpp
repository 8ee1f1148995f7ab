#include "advisor/answer/config_here.h"

#include <algorithm>
#include <filesystem>
#include <set>

#include "heddle/base/clock.h"
#include "heddle/base/error.h"
#include "heddle/config/placed_config.h"
#include "heddle/plan/check.h"
#include "heddle/planner/budget/memory_budget.h"
#include "heddle/planner/budget/state_residencies.h"
#include "heddle/planner/choose_plan.h"
#include "heddle/planner/machine.h"
#include "heddle/planner/profile_file.h"
#include "heddle/planner/rank_memory.h"
#include "heddle/planner/rated_profile.h"
#include "heddle/search/space.h"

namespace heddle::advisor {

namespace {

// The simulated step of 34 random plans was off by at most so much in nine of ten cases (docs/simulate.md).
constexpr double kOff = 0.22;
constexpr size_t kMostChanges = 3;

using Settings = std::vector<std::string>;

Settings with(Settings set, const Settings& more) {
  set.insert(set.end(), more.begin(), more.end());
  return set;
}

// Single changes to try: the microbatch, each degree doubled and halved, each value of what a planner varies.
std::vector<Settings> single_changes(const config::RunConfig& config) {
  std::vector<Settings> all;
  for (const std::string& size : search::microbatch_words(config.train.global_batch, 4 * config.train.microbatch))
    all.push_back({"train.microbatch=" + size});
  const plan::Degrees mesh = config.degrees();
  if (config.ranks() > 1) {
    const std::pair<const char*, int> degrees[] = {{"mesh.tp", mesh.tp},
                                                   {"mesh.cp", mesh.cp},
                                                   {"mesh.pp", mesh.pp},
                                                   {"mesh.ep", mesh.ep},
                                                   {"mesh.etp", mesh.etp}};
    for (const auto& [key, degree] : degrees) {
      for (const int other : {degree / 2, degree * 2}) {
        if (other < 1 || (degree == 1 && other == 0)) continue;
        all.push_back(
            {fmt::format("mesh.ranks={}", config.ranks()), "mesh.dp=0", fmt::format("{}={}", key, other)});
      }
    }
  }
  for (const config::Setting& s : config::settings()) {
    if (!s.as_switch || !s.as_switch->planned ||
        !planner::matters(*s.as_switch->planned, config, planner::has_own_memory(config)))
      continue;
    for (const plan::Value& value : s.planned_values()) {
      for (Settings change : s.as_switch->planned->beside) {
        change.push_back(s.key + "=" + plan::text_of(value));
        all.push_back(std::move(change));
      }
    }
  }
  return all;
}

// The keys that a change sets otherwise, "train.microbatch 8 → 16"; empty where it changes nothing.
std::vector<std::string> differences(const config::RunConfig& from, const config::RunConfig& to,
                                     std::string& text) {
  std::vector<std::string> set;
  for (const config::Setting& s : config::settings()) {
    if (s.present && (!s.present(from) || !s.present(to))) continue;
    if (s.get(from) == s.get(to)) continue;
    set.push_back(s.key + "=" + plan::text_of(s.get(to)));
    const std::string was = plan::text_of(s.get(from)), is = plan::text_of(s.get(to));
    if (s.key == "mesh.ranks") continue;
    text += fmt::format("{}{} {} → {}", text.empty() ? "" : ", ", s.key, was.empty() ? "none" : was,
                        is.empty() ? "none" : is);
  }
  return set;
}

// ConfigError with the key's place for what a plan's checks refuse.
void check(const std::string& path, const Settings& set, std::vector<std::string>& warnings) {
  config::PlacedConfig told = config::read_placed_config(path, set, &warnings);
  if (told.config.plan.memory.optimizer == plan::StateResidency::cheapest)
    told.config.plan.memory.optimizer = plan::StateResidency::device;
  told.refuse(plan::refusals_of(told.config.model, train::plan_of(told.config)));
}

void put_ranks(const planner::ConfigPrediction& c, const std::string& backend, PlanAnswer& a) {
  a.fits = true;
  for (const planner::RankMemory& r : planner::memory_of_ranks(c.plan, c.lowered, backend, c.limit_bytes)) {
    const auto bytes = static_cast<double>(r.memory.reserved_bytes);
    a.ranks.push_back({r.pipeline_rank, r.ranks, bytes, r.fits});
    a.peak_bytes = std::max(a.peak_bytes, bytes);
    a.fits &= r.fits;
  }
}

}  // namespace

std::vector<std::string> settings_of(const PlanRequest& request) {
  Settings set = request.set;
  if (request.devices > 0) set.push_back(fmt::format("mesh.ranks={}", request.devices));
  if (request.global_batch > 0) set.push_back(fmt::format("train.global_batch={}", request.global_batch));
  if (request.sequence > 0) set.push_back(fmt::format("train.sequence_length={}", request.sequence));
  if (!request.memory.empty())
    set.push_back(fmt::format("device.memory_bytes={}", config::parse_bytes(request.memory)));
  return set;
}

PlanAnswer answer_config_here(const PlanRequest& request, const PlanWatch& watch, double seconds) {
  const double began_s = now_s();
  PlanAnswer a;
  a.kind = PlanKind::config;
  a.subject = request.subject;
  a.target = "heddle";
  a.device = "this machine";
  Settings set = settings_of(request);
  check(request.subject, set, a.notes);
  const planner::WithinBudget read = planner::read_within_budget(request.subject, set);
  if (read.choice) set = with(set, read.choice->settings);
  const config::RunConfig& config = read.config;
  const std::string profile_path = planner::machine_profile_path(config.device.backend);
  std::error_code ignored;
  const bool measured = std::filesystem::exists(profile_path, ignored);
  const cost::MachineProfile profile = measured ? planner::read_profile(profile_path) : planner::rated_profile();
  const planner::PredictFn predict = [&](const config::RunConfig& c, bool tried) {
    return planner::predict_config(c, profile, {}, tried);
  };
  if (watch.doing) watch.doing("simulating a step", -1);
  std::optional<planner::ConfigPrediction> now;
  try {
    now = predict(config, true);
  } catch (const ir::OutOfMemory&) {  // its time and bytes as without a limit
    config::RunConfig unlimited = config;
    unlimited.device.memory_bytes = int64_t{1} << 50;
    now = predict(unlimited, false);
    now->limit_bytes = train::memory_limit_of(config, {.memory = static_cast<int>(config.ranks())});
  }
  a.found = true;
  a.model = config.name;
  a.devices = config.ranks();
  a.global_batch = config.train.global_batch;
  a.sequence = config.train.sequence_length;
  a.microbatch = config.train.microbatch;
  a.precision = name_of(now->plan.dtype);
  a.layout = plan::text_of(now->plan.mesh);
  a.schedule = now->plan.mesh.pp > 1 ? config.plan.parallel.schedule : "";
  const model::Shape shape = model::shape_of(config.model, config.name);
  a.parameters = model::total_parameters(shape);
  a.active_parameters = model::active_parameters(shape);
  const auto tokens = static_cast<double>(a.global_batch * a.sequence);
  a.flops_per_token = now->prediction.model_flops / tokens;
  const double step_s = now->prediction.step_us * 1e-6;
  a.step_s = {step_s, step_s / (1 + kOff), step_s * (1 + kOff)};
  a.tokens_per_s = {tokens / step_s, tokens / a.step_s.high, tokens / a.step_s.low};
  a.interval_from = measured ? "nine of ten; from 34 simulated plans beside their runs"
                             : "nine of ten; from 34 simulated plans; this machine is not measured, so ratios are "
                               "right and times about: `heddle profile`";
  a.model_flops_utilization = now->prediction.mfu;
  a.memory_bytes = static_cast<double>(now->limit_bytes);
  a.counted = true;
  put_ranks(*now, config.device.backend, a);

  std::set<Settings> seen;
  for (const Settings& change : single_changes(config)) {
    if (now_s() - began_s > seconds || (watch.stop && watch.stop())) {
      a.notes.push_back(fmt::format(
          "after {:.0f} s no more changes were tried; `heddle train --mode auto` tries combinations", seconds));
      break;
    }
    if (watch.doing) watch.doing("trying single changes", (now_s() - began_s) / seconds);
    PlanChange found;
    try {
      const config::RunConfig changed = config::read_run_config(request.subject, with(set, change));
      found.add = differences(config, changed, found.change);
      if (found.add.empty() || !seen.insert(found.add).second) continue;
      const planner::Candidate c = planner::predicted(request.subject, set, change, predict, false);
      ++a.searched;
      if (!c.fits()) continue;
      found.speed_ratio = now->prediction.step_us / c.step_us;
      found.peak_bytes = static_cast<double>(c.reserved_bytes);
    } catch (const ConfigError&) {  // no plan: the axes don't fit the model, a schedule wants other microbatches
      continue;
    }
    a.changes.push_back(std::move(found));
  }
  std::stable_sort(a.changes.begin(), a.changes.end(),
                   [](const PlanChange& x, const PlanChange& y) { return x.speed_ratio > y.speed_ratio; });
  if (a.changes.size() > kMostChanges) a.changes.resize(kMostChanges);
  a.typed.push_back({"heddle", {request.subject}, ""});
  for (const std::string& setting : set) a.typed.front().words.push_back(setting);
  a.seconds = now_s() - began_s;
  return a;
}

}  // namespace heddle::advisor
