#include "heddle/session/ranks/layer_copies.h"

#include <algorithm>
#include <map>

#include "heddle/ir/placed_figures.h"

namespace heddle::session {

namespace {

struct CopyBytes {
  double weights = 0, gradients = 0;
};

// By layer: what a rank receives for one copy in a microbatch, and what it gives back.
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

std::vector<observe::LayerCopies> layer_copies(const train::StepResult& result, const plan::Lowered& lowered,
                                               const plan::Mesh& mesh) {
  const auto holders = static_cast<size_t>(mesh.at(0).of(ir::Axis::ep));
  std::vector<observe::LayerCopies> layers;
  const bool any = std::any_of(result.statistics.begin(), result.statistics.end(),
                               [](const train::Reading& reading) { return reading.kind == &model::kPlaced; });
  if (!any) return layers;
  std::map<int, CopyBytes> bytes_of = bytes_of_copies(lowered);
  for (const train::StepResult::Load& load : result.loads()) {
    for (const train::Reading& reading : result.statistics) {
      if (reading.kind != &model::kPlaced || reading.of != load.layer) continue;
      observe::LayerCopies& layer = layers.emplace_back();
      layer.routed_H.assign(holders, 0);
      const size_t each = load.rows_E.size() / holders;
      for (size_t e = 0; e < load.rows_E.size(); ++e) {
        const auto home = static_cast<size_t>(result.homes.of(load.layer, static_cast<int64_t>(e)));
        layer.routed_H[home / each] += load.rows_E[e];
      }
      layer.computed_H.assign(reading.values.begin(),
                              reading.values.begin() + static_cast<std::ptrdiff_t>(holders));
      const auto figure = [&](PlacedFigure what) { return reading.values.at(holders + static_cast<size_t>(what)); };
      const CopyBytes bytes = bytes_of[load.layer];
      layer.figures = {.rows = figure(PlacedFigure::rows_moved),
                       .crossings_saved = figure(PlacedFigure::crossings_saved),
                       .weight_bytes = figure(PlacedFigure::copies) * bytes.weights,
                       .gradient_bytes = figure(PlacedFigure::copies) * bytes.gradients,
                       .by_counts = figure(PlacedFigure::by_counts),
                       .by_history = figure(PlacedFigure::by_history),
                       .even = figure(PlacedFigure::even),
                       .not_worth = figure(PlacedFigure::not_worth)};
    }
  }
  return layers;
}

}  // namespace heddle::session
