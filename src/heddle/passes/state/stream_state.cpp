#include "heddle/passes/state/stream_state.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "heddle/passes/copy_ops.h"
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
    std::vector<std::pair<ValueId, ValueId>> pairs;  // on the host, in the slot on the device
    for (const size_t u : state.updates) {
      const ValueId in_slot = slot(op, u, ir::Space::device, turn(), end - begin);
      pairs.emplace_back(std::exchange(part.updates[u], in_slot), in_slot);
    }
    for (const auto& [host, in_slot] : pairs) copy("copy_in", part, host, in_slot);
    listing_.ops.push_back(part);
    for (const auto& [host, in_slot] : pairs) copy("copy_out", part, in_slot, host);
  }
};

// Only ops that can reach the value on the host use it.
bool may_be_mapped(const ir::Uses& uses, ValueId id) {
  const auto updaters = uses.updaters(id);
  return uses.readers(id).empty() && std::all_of(updaters.begin(), updaters.end(), [&](int updater) {
           const Op& op = uses.op(updater);
           const auto at = std::find(op.updates.begin(), op.updates.end(), id);
           return ir::reaches_host(op, static_cast<size_t>(at - op.updates.begin()));
         });
}

}  // namespace

void map_state(ir::Listing& listing) {
  const ir::Uses uses(listing);
  for (const Op& op : listing.ops) {
    for (const std::string_view name : ir::names_in(op.def->reaches_host)) {
      if (may_be_mapped(uses, op.updated(name))) listing.value(op.updated(name)).space = ir::Space::host;
    }
  }
}

void stream_state(ir::Listing& listing, double bytes_per_us) { Streamer(listing, bytes_per_us).run(); }

}  // namespace heddle::passes
