#include "heddle/train/step/expert_moves.h"

#include <algorithm>
#include <cmath>

#include "heddle/comm/exchange/places.h"
#include "heddle/model/expert_costs.h"

namespace heddle::train {

namespace {

// Bytes by layer: all that moves with one expert, of one slice of its width.
std::map<int, double> bytes_of_experts(const ir::Listing& listing) {
  std::map<int, double> bytes;
  for (const ir::Op& op : listing.ops) {
    if (ir::place_of("state", op.def->updates) < 0) continue;
    const auto packed = static_cast<double>(op.attributes.integer_or("packed", 0));
    for (const ir::ValueId id : op.updates) {
      const auto rows = static_cast<double>(op.attributes.integer("numbers") * size_of(listing.value(id).dtype));
      bytes[op.layer] += packed > 0 ? packed : rows;
    }
  }
  return bytes;
}

}  // namespace

ExpertMoves::ExpertMoves(const model::ModelConfig& model, const plan::Plan& plan, const plan::Lowered& lowered,
                         const plan::Mesh& mesh, const std::vector<int>& node_of) {
  const model::Dispatcher& exchange = plan.parallel.exchange;
  if (!exchange.migrates() || plan.mesh.ep == 1) return;
  every_ = exchange.migrate_every;
  microbatches_ = plan.microbatches;
  const model::ExpertCosts costs = model::expert_costs(model, exchange,
                                                       {.slices = plan.mesh.etp,
                                                        .dtype = plan.dtype,
                                                        .exact_sums = plan.exact_sums,
                                                        .flops_per_us = plan.rates.flops_per_us});
  for (int stage = 0; stage < plan.mesh.pp; ++stage) {
    // The ranks of the first copies: what all the others have is the same.
    int first = 0;
    while (mesh.at(first).at(ir::Axis::pp) != stage || mesh.at(first).at(ir::Axis::edp) != 0) ++first;
    std::vector<int> nodes;
    for (const int rank : mesh.group("experts", first)) nodes.push_back(node_of.empty() ? 0 : node_of[rank]);
    for (const auto& [number, bytes] : bytes_of_experts(lowered.program.listings[stage])) {
      Layer& layer = layers_[number];
      layer.expert_bytes = bytes * plan.mesh.etp;
      const bool copied = !model.experts_bias;
      layer.holders = {.slices = plan.mesh.etp,
                       .replicas = copied ? exchange.replica_slots() : 0,
                       .node_of = comm::Places(0, nodes).node};
      const auto ps = [](double us) { return static_cast<int64_t>(std::llround(std::min(us * 1e6, 1e15))); };
      layer.rules = {.placing = {.costs = {.row_ps = costs.row_ps,
                                           .row_within_ps = costs.row_within_ps,
                                           .row_across_ps = costs.row_across_ps,
                                           .replica_within_ps = costs.replica_within_ps,
                                           .replica_across_ps = costs.replica_across_ps},
                                 .whole_sources = plan.exact_sums},
                     .rows = plan.sequences * plan.sequence_length / (int64_t{plan.mesh.tp} * plan.mesh.cp) *
                             model.num_experts_per_tok,
                     .microbatches = microbatches_ * static_cast<double>(every_),
                     .expert_within_ps = ps(bytes / exchange.within_bytes_per_us()),
                     .expert_across_ps = ps(bytes / exchange.across_bytes_per_us())};
    }
  }
}

std::optional<ExpertMoves::Next> ExpertMoves::at(int64_t step, const ExpertHistory& history,
                                                 const ExpertPlacements& placements) const {
  if (every_ == 0 || step % every_ != 0) return std::nullopt;
  Next next;
  constexpr double kPicosecond = 1e-12;
  for (const auto& [number, layer] : layers_) {
    const auto known = history.layers.find(number);
    if (known == history.layers.end()) continue;
    std::vector<int32_t> now(known->second.rows_E.size());
    for (size_t e = 0; e < now.size(); ++e)
      now[e] = static_cast<int32_t>(placements.of(number, static_cast<int64_t>(e)));
    comm::MoveChoice choice = comm::choose_moves(known->second.rows_E, now, layer.holders, layer.rules);
    switch (choice.outcome) {
      case comm::MoveOutcome::even: ++next.figures.even; break;
      case comm::MoveOutcome::not_worth: ++next.figures.not_worth; break;
      case comm::MoveOutcome::moved:
        ++next.figures.moved;
        next.figures.experts += choice.moved;
        next.figures.bytes += static_cast<double>(choice.moved) * layer.expert_bytes;
        next.figures.predicted_gain_s += static_cast<double>(choice.gain_ps) * microbatches_ * kPicosecond;
        next.figures.predicted_cost_s += static_cast<double>(choice.cost_ps) * kPicosecond;
        next.placements[number] = std::move(choice.position_of_E);
    }
  }
  const bool looked = next.figures.moved + next.figures.even + next.figures.not_worth > 0;
  return looked ? std::optional(std::move(next)) : std::nullopt;
}

}  // namespace heddle::train
