#include "heddle/passes/update/move_experts.h"

#include <algorithm>
#include <map>

#include "heddle/base/error.h"
#include "heddle/ops/ops.h"

namespace heddle::passes {

namespace {

using ir::Axis;
using ir::ValueId;

bool is_cut_by_experts(const model::Parameter& p) {
  return (p.trained || p.frozen) && p.experts > 0 &&
         std::any_of(p.cuts.begin(), p.cuts.end(),
                     [](const model::Cut& cut) { return cut.dim == 0 && cut.axis == Axis::ep; });
}

// The homes that the experts of a layer have, and those that they get as the step ends: all zero, so alike, where
// none moves.
ValueId load_moves(ir::Listing& listing, const model::Parameter& p) {
  const ir::Input moves{.name = fmt::format("moves.{}", p.layer),
                        .dtype = Dtype::i32,
                        .shape = {2, p.experts},
                        .owner = "migration",
                        .otherwise = ir::Default::of(0)};
  listing.add_input(moves);
  return listing.append(
      {.def = &ops::find("load"), .phase = ir::Phase::end, .layer = p.layer, .attributes = {{"input", moves.name}}},
      {moves.name})[0];
}

}  // namespace

void move_experts(model::RankText& text, const ir::Coordinates& mesh) {
  ir::Listing& listing = text.listing;
  std::map<int, ValueId> moves;  // by layer
  for (const model::Parameter& p : text.parameters) {
    if (!is_cut_by_experts(p)) continue;
    const bool by_slice = p.replica_group == "expert";  // an adapter that slices have in common
    HEDDLE_CHECK(by_slice || p.replica_group == "edp", "'{}' has copies on '{}'", p.name, p.replica_group);
    const ir::Value& weight = listing.value(p.value);
    int64_t numbers = 1;
    for (size_t i = 1; i < weight.shape.size(); ++i) numbers *= weight.shape[i].count;
    std::vector<ValueId> state;
    for (const char* beside : {"master.", "rest.", "copy.", "m.", "v.", "average."}) {
      if (const ValueId id = listing.find(beside + p.name); id != ir::none) state.push_back(id);
    }
    const auto [known, fresh] = moves.try_emplace(p.layer, ir::none);
    if (fresh) known->second = load_moves(listing, p);
    ir::Op op;
    op.def = &ops::find("move_experts");
    op.in = {known->second};
    op.phase = ir::Phase::end;
    op.layer = p.layer;
    op.group = "experts";
    op.attributes = {{"ranks", int64_t{mesh.of(Axis::ep)} * mesh.of(Axis::etp)},
                     {"slices", int64_t{mesh.of(Axis::etp)}},
                     {"experts", p.experts},
                     {"numbers", numbers}};
    if (by_slice) op.attributes.set("by_slice", int64_t{1});
    const int runs = mesh.of(Axis::edp) * (by_slice ? mesh.of(Axis::etp) : 1);
    const bool made_anew = runs > 1 && !p.frozen;  // gathered of the runs
    const bool packed = weight.layout == ir::Layout::packed;
    const int64_t packed_bytes = weight.packed_bytes / weight.shape[0].count;
    const bool sharded = weight.space == ir::Space::nowhere;
    if (!made_anew && !packed && !sharded) state.push_back(p.value);
    op.updates = state;
    listing.append(op, {});
    if (made_anew || !packed) continue;
    op.updates = {p.value};
    op.attributes.set("packed", packed_bytes);
    listing.append(std::move(op), {});
  }
}

}  // namespace heddle::passes
