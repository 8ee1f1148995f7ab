#include "heddle/train/controllers/expert_history.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>

#include "heddle/base/error.h"
#include "heddle/train/checkpoint.h"
#include "heddle/train/controllers/expert_migration.h"
#include "heddle/train/trainer_options.h"

namespace heddle::train {

namespace {

double imbalance_of(const std::vector<double>& rows_E, int64_t holders, int layer,
                    const ExpertPlacements& placements) {
  const int64_t each = std::ssize(rows_E) / holders;
  std::vector<double> rows_H(static_cast<size_t>(holders), 0);
  for (int64_t e = 0; e < std::ssize(rows_E); ++e)
    rows_H[static_cast<size_t>(placements.of(layer, e) / each)] += rows_E[static_cast<size_t>(e)];
  const double all = std::accumulate(rows_H.begin(), rows_H.end(), 0.0);
  return all > 0 ? *std::max_element(rows_H.begin(), rows_H.end()) * static_cast<double>(holders) / all : 1;
}

ExpertHistory loads_from(const nlohmann::json& state) {
  ExpertHistory history;
  for (const nlohmann::json& of : state) {
    ExpertHistory::Layer& layer = history.layers[of.at("layer").get<int>()];
    of.at("rows").get_to(layer.rows_E);
    of.at("uneven").get_to(layer.uneven);
  }
  return history;
}

}  // namespace

void ExpertHistory::learn(const std::vector<StepResult::Load>& loads, int64_t holders,
                          const ExpertPlacements& placements) {
  for (const StepResult::Load& load : loads) {
    Layer& layer = layers[load.layer];
    if (layer.rows_E.size() != load.rows_E.size()) layer.rows_E.assign(load.rows_E.begin(), load.rows_E.end());
    for (size_t e = 0; e < load.rows_E.size(); ++e) layer.rows_E[e] = (layer.rows_E[e] + load.rows_E[e]) / 2;
    const double imbalance = imbalance_of(layer.rows_E, holders, load.layer, placements);
    layer.uneven = layer.uneven ? imbalance >= kEven : imbalance > kUneven;
  }
}

std::map<int, std::vector<double>> ExpertHistory::uneven_rows() const {
  std::map<int, std::vector<double>> rows;
  for (const auto& [number, layer] : layers) {
    if (layer.uneven) rows[number] = layer.rows_E;
  }
  return rows;
}

ExpertLoads::ExpertLoads(const ControllerContext& context)
    : others_(context.others),
      program_(context.lowered.program),
      recalls_(context.options.plan.parallel.exchange.recalls()),
      learns_(recalls_ || context.options.plan.parallel.exchange.migrates()),
      holders_(context.options.plan.mesh.ep) {}

bool ExpertLoads::wanted(const TrainerOptions& options) { return options.model.n_routed_experts > 0; }

void ExpertLoads::check(const nlohmann::json& state, const CheckpointState& of, const std::string& place) {
  for (const auto& [number, layer] : loads_from(state).layers) {
    const bool sound =
        std::ssize(layer.rows_E) == of.model.n_routed_experts &&
        std::ranges::all_of(layer.rows_E, [](double rows) { return rows >= 0 && std::isfinite(rows); });
    if (!sound) {
      config_error("{}: the file names the rows of {} experts; {} rows of 0 or more are expected", place,
                   layer.rows_E.size(), of.model.n_routed_experts);
    }
  }
}

void ExpertLoads::before(const NextStep& /*step*/, device::Inputs& inputs) {
  if (!recalls_) return;
  for (const auto& [layer, rows] : history_.uneven_rows()) {
    const std::string name = fmt::format("expert_rows.{}", layer);
    if (program_.takes(name)) inputs.set(name, rows);
  }
}

void ExpertLoads::after(const Readings& step, observe::Figures& /*figures*/) {
  if (learns_) history_.learn(step.result.loads(), holders_, placements_in(others_));
}

nlohmann::json ExpertLoads::state() const {
  nlohmann::json all;
  for (const auto& [number, layer] : history_.layers)
    all.push_back({{"layer", number}, {"rows", layer.rows_E}, {"uneven", layer.uneven}});
  return all;
}

void ExpertLoads::restore(const nlohmann::json& state) { history_ = loads_from(state); }

}  // namespace heddle::train
