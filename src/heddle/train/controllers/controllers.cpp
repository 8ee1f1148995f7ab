#include "heddle/train/controllers/controllers.h"

#include <array>
#include <nlohmann/json.hpp>

#include "heddle/base/error.h"
#include "heddle/runtime/executor.h"
#include "heddle/train/agreement.h"
#include "heddle/train/controllers/expert_history.h"
#include "heddle/train/controllers/expert_migration.h"
#include "heddle/train/controllers/outliers.h"
#include "heddle/train/controllers/rates.h"
#include "heddle/train/controllers/snapshot_schedule.h"

namespace heddle::train {

namespace {

bool always(const TrainerOptions& /*options*/) { return true; }

template <class T>
std::unique_ptr<Controller> make(ControllerContext& context) {
  return std::make_unique<T>(context);
}

constexpr auto kRows = std::to_array<ControllerRow>({
    {"rates", always, make<Rates>},
    {"outliers", always, make<Outliers>, Outliers::check},
    {"expert_history", ExpertLoads::wanted, make<ExpertLoads>, ExpertLoads::check},
    {"expert_homes", ExpertMigration::wanted, make<ExpertMigration>, ExpertMigration::check},
    {"snapshots", SnapshotSchedule::wanted, make<SnapshotSchedule>},
});

}  // namespace

nlohmann::json Controller::state() const { return nullptr; }

std::span<const ControllerRow> controller_rows() { return kRows; }

void Controllers::make(ControllerContext context) {
  executor_ = &context.executor;
  for (const ControllerRow& row : kRows) {
    if (row.wanted(context.options)) held_.push_back({row.name, row.make(context)});
  }
}

void Controllers::before(const NextStep& step, device::Inputs& inputs) {
  for (const Held& held : held_) held.controller->before(step, inputs);
}

void Controllers::ran(device::Inputs& inputs) {
  bool others_stand = false;
  for (const Held& held : held_) others_stand |= held.controller->ran(inputs);
  if (others_stand) stand();
}

void Controllers::stand() {
  device::Inputs standing;
  for (const Held& held : held_) held.controller->stand(standing);
  executor_->stand(std::move(standing));
}

void Controllers::after(const Readings& step, observe::Figures& figures) {
  for (const Held& held : held_) held.controller->after(step, figures);
}

ControllerStates Controllers::states() const {
  ControllerStates states;
  for (const Held& held : held_) {
    const nlohmann::json state = held.controller->state();
    if (!state.is_null()) states.emplace(held.name, state.dump());
  }
  return states;
}

void Controllers::restore(const ControllerStates& states) {
  for (const Held& held : held_) {
    const auto at = states.find(std::string(held.name));
    held.controller->restore(at == states.end() ? nlohmann::json() : nlohmann::json::parse(at->second));
  }
  stand();
}

void Controllers::agree(RankExchange& ranks) const {
  const ControllerStates all = states();
  if (const std::string found = difference(ranks, {all.begin(), all.end()}); !found.empty())
    internal_error("controllers must remember the same on every rank: {}", found);
}

}  // namespace heddle::train
