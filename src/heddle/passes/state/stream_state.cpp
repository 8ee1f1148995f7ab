#include "heddle/passes/state/stream_state.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "heddle/passes/copies.h"
#include "heddle/passes/state/state_slices.h"

namespace heddle::passes {

namespace {

using ir::Op;
using ir::ValueId;

class Streamer : public StateSlices {
 public:
  using StateSlices::StateSlices;

 private:
  void write(const Op& op, const State& state, Op part, int64_t begin, int64_t end) override {
    for (size_t i = 0; i < part.in.size(); ++i) {
      if (op.in[i] != ir::none && is_cut(op, op.def->operands, i))
        part.in[i] = listing_.elements_of(op.in[i], begin, end);
    }
    struct Way {
      ValueId from, slot, to;
    };
    std::vector<Way> ways;
    for (const size_t u : state.updates) {
      const ValueId here = part.updates[u], in_slot = slot(op, u, ir::Space::device, turn(), end - begin);
      Way way{here, in_slot, here};
      const auto beside = [&] { return listing_.elements_of(kept_.at(op.updates[u]).copy, begin, end); };
      if (runs_ahead(op, op.updates[u])) way.to = beside();
      if (takes_back(op, op.updates[u])) way.from = beside();
      ways.push_back(way);
      part.updates[u] = in_slot;
    }
    for (const Way& way : ways) copy("copy_in", part, way.from, way.slot);
    listing_.ops.push_back(part);
    for (const Way& way : ways) copy("copy_out", part, way.slot, way.to);
  }

  void end_of(const Op& op, const State& state) override {
    for (const size_t u : state.updates) {
      if (!runs_ahead(op, op.updates[u])) continue;
      Op flip = op_beside("flip", ir::none, op);
      flip.in.clear();
      flip.updates = {op.updates[u], kept_.at(op.updates[u]).copy};
      flip.condition = op.condition;
      listing_.ops.push_back(std::move(flip));
    }
  }

  // The old slices are where the new ones were written.
  void keep(const Op&) override {}

  bool runs_ahead(const Op& op, ValueId state) const {
    const auto kept = kept_.find(state);
    return kept != kept_.end() && op.phase == ir::Phase::end && op.condition == kept->second.before;
  }
  bool takes_back(const Op& op, ValueId state) const {
    const auto kept = kept_.find(state);
    return kept != kept_.end() && op.phase == ir::Phase::check && op.condition == kept->second.back;
  }
};

// Whether nothing uses the value but what may reach it on the host, and what keeps a copy of it.
bool may_be_mapped(const ir::Uses& uses, const std::map<ValueId, KeptState>& kept, ValueId id) {
  const auto readers = uses.readers(id), updaters = uses.updaters(id);
  return std::all_of(readers.begin(), readers.end(),
                     [&](int reader) { return keeps_state(kept, uses.op(reader)); }) &&
         std::all_of(updaters.begin(), updaters.end(), [&](int updater) {
           const Op& op = uses.op(updater);
           const auto at = std::find(op.updates.begin(), op.updates.end(), id);
           return keeps_state(kept, op) || ir::reaches_host(op, static_cast<size_t>(at - op.updates.begin()));
         });
}

}  // namespace

void map_state(ir::Listing& listing) {
  const ir::Uses uses(listing);
  const std::map<ValueId, KeptState> kept = kept_states(listing);
  for (const Op& op : listing.ops) {
    for (const std::string_view name : ir::names_in(op.def->reaches_host)) {
      if (may_be_mapped(uses, kept, op.updated(name))) listing.value(op.updated(name)).space = ir::Space::host;
    }
  }
  for (Op& op : listing.ops) {
    if (keeps_state(kept, op) && listing.value(op.in[0]).space == listing.value(op.updates[0]).space)
      op = kept_by_processor(op);
  }
}

void stream_state(ir::Listing& listing, double bytes_per_us) { Streamer(listing, bytes_per_us).run(); }

}  // namespace heddle::passes
