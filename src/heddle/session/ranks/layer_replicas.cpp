#include "heddle/session/ranks/layer_replicas.h"

#include <algorithm>
#include <map>
#include <utility>

#include "heddle/ir/placed_figures.h"

namespace heddle::session {

namespace {

namespace figures = observe::figures;

struct CopyBytes {
  double weights = 0, gradients = 0;
};

// Bytes by layer: those that a rank receives for one replica in a microbatch, and those that it returns.
std::map<int, CopyBytes> bytes_of_copies(const plan::Lowered& lowered) {
  std::map<int, CopyBytes> most;  // a layer may stand in the texts of several classes of ranks
  for (const ir::Listing& listing : lowered.program.listings) {
    std::map<int, CopyBytes> here;
    for (const ir::Op& op : listing.ops) {
      if (!op.def->collective || op.def->moves != ir::Moves::nothing) continue;
      if (ir::place_of("placement", op.def->operands) < 0) continue;
      const bool gradients = op.def->adds_beside;
      const ir::ValueId moved = gradients ? op.in[0] : op.out[0];
      const ir::Shape& shape = listing.value(moved).shape;
      if (shape.size() != 3) continue;  // it moves no weights
      CopyBytes& bytes = here[op.layer];
      (gradients ? bytes.gradients : bytes.weights) +=
          static_cast<double>(listing.bytes(moved, ir::FixedRows())) / static_cast<double>(shape[0].count);
    }
    for (const auto& [layer, bytes] : here) {
      CopyBytes& of = most[layer];
      of = {std::max(of.weights, bytes.weights), std::max(of.gradients, bytes.gradients)};
    }
  }
  return most;
}

}  // namespace

std::vector<observe::Figures> layer_replicas(const train::StepResult& result,
                                             const train::ExpertPlacements& placements,
                                             const plan::Lowered& lowered, const plan::Mesh& mesh) {
  const auto holders = static_cast<size_t>(mesh.at(0).of(ir::Axis::ep));
  std::vector<observe::Figures> layers;
  const bool any = std::any_of(result.statistics.begin(), result.statistics.end(),
                               [](const train::Reading& reading) { return reading.kind == &model::kPlaced; });
  if (!any) return layers;
  std::map<int, CopyBytes> bytes_of = bytes_of_copies(lowered);
  for (const train::StepResult::Load& load : result.loads()) {
    observe::Figures& layer = layers.emplace_back();
    for (const train::Reading& reading : result.statistics) {
      if (reading.kind != &model::kPlaced || reading.of != load.layer) continue;
      std::vector<double> routed_H(holders, 0);
      const size_t each = load.rows_E.size() / holders;
      for (size_t e = 0; e < load.rows_E.size(); ++e) {
        const auto home = static_cast<size_t>(placements.of(load.layer, static_cast<int64_t>(e)));
        routed_H[home / each] += load.rows_E[e];
      }
      layer.set_list(figures::kRoutedRows, std::move(routed_H));
      layer.set_list(figures::kComputedRows,
                     {reading.values.begin(), reading.values.begin() + static_cast<std::ptrdiff_t>(holders)});
      const auto placed = [&](PlacedFigure what) { return reading.values.at(holders + static_cast<size_t>(what)); };
      const CopyBytes bytes = bytes_of[load.layer];
      layer.set(figures::kReplicaRows, placed(PlacedFigure::rows_moved));
      layer.set(figures::kReplicaCrossingsSaved, placed(PlacedFigure::crossings_saved));
      layer.set(figures::kReplicaWeightBytes, placed(PlacedFigure::replicas) * bytes.weights);
      layer.set(figures::kReplicaGradientBytes, placed(PlacedFigure::replicas) * bytes.gradients);
      layer.set(figures::kReplicasByCounts, placed(PlacedFigure::by_counts));
      layer.set(figures::kReplicasByHistory, placed(PlacedFigure::by_history));
      layer.set(figures::kReplicasEven, placed(PlacedFigure::even));
      layer.set(figures::kReplicasNotWorth, placed(PlacedFigure::not_worth));
    }
  }
  return layers;
}

}  // namespace heddle::session
