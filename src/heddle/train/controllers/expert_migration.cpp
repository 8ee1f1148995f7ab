#include "heddle/train/controllers/expert_migration.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "heddle/base/error.h"
#include "heddle/observe/figures.h"
#include "heddle/train/checkpoint.h"
#include "heddle/train/trainer_options.h"

namespace heddle::train {

namespace {

ExpertPlacements homes_from(const nlohmann::json& state) {
  ExpertPlacements placements;
  state.at("holders").get_to(placements.holders);
  for (const nlohmann::json& of : state.at("layers"))
    of.at("homes").get_to(placements.layers[of.at("layer").get<int>()]);
  return placements;
}

}  // namespace

ExpertMigration::ExpertMigration(const ControllerContext& context)
    : others_(context.others),
      holders_(context.options.plan.mesh.ep),
      stays_(context.options.is_adapted()),
      chooser_(context.options.model, context.options.plan, context.lowered, context.mesh, context.node_of) {}

bool ExpertMigration::wanted(const TrainerOptions& options) {
  return options.plan.parallel.exchange.migrates() && options.plan.mesh.ep > 1;
}

void ExpertMigration::check(const nlohmann::json& state, const CheckpointState& of, const std::string& place) {
  const ExpertPlacements saved = homes_from(state);
  const int64_t experts = of.model.n_routed_experts;
  for (const auto& [number, placements] : saved.layers) {
    std::vector<int32_t> sorted = placements;
    std::sort(sorted.begin(), sorted.end());
    bool sound = std::ssize(placements) == experts && saved.holders > 0 && experts % saved.holders == 0;
    for (size_t i = 0; i < sorted.size(); ++i) sound = sound && sorted[i] == static_cast<int32_t>(i);
    if (!sound) {
      config_error("{}: the file places {} experts on {} ranks; each of {} needs a place of its own", place,
                   placements.size(), saved.holders, experts);
    }
  }
}

void ExpertMigration::stand(device::Inputs& standing) const {
  for (const auto& [layer, placements] : placements_.layers)
    standing.set(fmt::format("homes.{}", layer), placements);
}

void ExpertMigration::before(const NextStep& step, device::Inputs& inputs) {
  last_placements_ = placements_;
  moves_.reset();
  next_.clear();
  std::optional<ExpertMoves::Next> next =
      chooser_.at(step.number(), others_.get<ExpertLoads>().history(), placements_);
  if (!next) return;
  moves_ = next->figures;
  next_ = std::move(next->placements);
  for (const auto& [layer, after] : next_) {
    std::vector<int32_t> moves(after.size());
    for (size_t e = 0; e < after.size(); ++e)
      moves[e] = static_cast<int32_t>(placements_.of(layer, static_cast<int64_t>(e)));
    moves.insert(moves.end(), after.begin(), after.end());
    inputs.set(fmt::format("moves.{}", layer), moves);
  }
}

bool ExpertMigration::ran(device::Inputs& inputs) {
  const bool moved = !next_.empty();
  for (auto& [layer, placements] : next_) {
    inputs.forget(fmt::format("moves.{}", layer));
    placements_.layers[layer] = std::move(placements);
  }
  next_.clear();
  if (!placements_.layers.empty()) placements_.holders = holders_;
  return moved;
}

void ExpertMigration::after(const Readings& /*step*/, observe::Figures& figures) {
  namespace rows = observe::figures;
  if (!moves_) return;
  figures.set(rows::kExpertsMoved, static_cast<double>(moves_->experts));
  figures.set(rows::kExpertsMovedBytes, moves_->bytes);
  figures.set(rows::kMovesMade, static_cast<double>(moves_->moved));
  figures.set(rows::kMovesEven, static_cast<double>(moves_->even));
  figures.set(rows::kMovesNotWorth, static_cast<double>(moves_->not_worth));
}

nlohmann::json ExpertMigration::state() const {
  if (placements_.layers.empty()) return nullptr;
  nlohmann::json layers = nlohmann::json::array();
  for (const auto& [number, placements] : placements_.layers)
    layers.push_back({{"layer", number}, {"homes", placements}});
  return {{"holders", placements_.holders}, {"layers", layers}};
}

void ExpertMigration::restore(const nlohmann::json& state) {
  placements_ = state.is_null() || stays_ ? ExpertPlacements() : homes_from(state);
  if (placements_.holders != holders_) placements_ = {};
}

namespace {

const ExpertPlacements kUnmoved;

}  // namespace

const ExpertPlacements& placements_in(const Controllers& controllers) {
  const auto* migration = controllers.find<ExpertMigration>();
  return migration == nullptr ? kUnmoved : migration->placements();
}

const ExpertPlacements& last_placements_in(const Controllers& controllers) {
  const auto* migration = controllers.find<ExpertMigration>();
  return migration == nullptr ? kUnmoved : migration->last_placements();
}

}  // namespace heddle::train
