#include "heddle/passes/state/stream_state.h"

#include <utility>
#include <vector>

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
    std::vector<std::pair<ValueId, ValueId>> pairs;  // on the host, in the slot
    for (const size_t u : state.updates) {
      const ValueId in_slot = slot(op, u, ir::Space::device, turn(), end - begin);
      pairs.emplace_back(part.updates[u], in_slot);
      part.updates[u] = in_slot;
    }
    for (const auto& [host, in_slot] : pairs) copy("copy_in", op, host, in_slot);
    listing_.ops.push_back(std::move(part));
    for (const auto& [host, in_slot] : pairs) copy("copy_out", op, in_slot, host);
  }
};

}  // namespace

void map_state(ir::Listing& listing) {
  const ir::Uses uses(listing);
  for (const Op& op : listing.ops) {
    for (const std::string_view name : ir::names_in(op.def->reaches_host)) {
      const ValueId id = op.updated(name);
      if (uses.readers(id).empty() && uses.updaters(id).size() == 1) listing.value(id).space = ir::Space::host;
    }
  }
}

void stream_state(ir::Listing& listing, double bytes_per_us) { Streamer(listing, bytes_per_us).run(); }

}  // namespace heddle::passes
