#include "heddle/passes/state/host_state.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "heddle/passes/copy_ops.h"
#include "heddle/passes/host/staged_ops.h"
#include "heddle/passes/state/state_slices.h"

namespace heddle::passes {

namespace {

using ir::none;
using ir::Op;
using ir::ValueId;

class HostState : public StateSlices {
 public:
  using StateSlices::StateSlices;

 private:
  // Copies the updates' operands out, each behind the op that makes it. A sum over the microbatches leaves before
  // the step's end, the factor and the rates before the first update that reads them.
  void begin(const std::map<size_t, State>& states) override {
    const std::vector<Op>& ops = listing_.ops;
    const auto end = static_cast<size_t>(
        std::find_if(ops.begin(), ops.end(), [](const Op& op) { return op.phase == ir::Phase::end; }) -
        ops.begin());
    std::vector<Leaving> leaving;  // the last layer's first, as the backward makes them
    std::map<ValueId, size_t> known;
    for (auto at = states.rbegin(); at != states.rend(); ++at) {
      const Op& op = ops[at->first];
      for (size_t i = 0; i < op.in.size(); ++i) {
        if (op.in[i] == none) continue;
        const auto [found, fresh] = known.try_emplace(op.in[i], leaving.size());
        if (fresh)
          leaving.push_back(
              {op.in[i], copy_beside("copy_out", listing_, op.in[i], op), is_cut(op, op.def->operands, i)});
        Leaving& leaves = leaving[found->second];
        leaves.first_read = at->first;
      }
    }
    for (const Leaving& leaves : leaving) {
      const int made_by = uses_.writer_index(leaves.read);
      if (leaves.in_slices && made_by >= 0) {
        after_[made_by].push_back(leaves);
      } else {
        before_[leaves.in_slices ? end : leaves.first_read].push_back(leaves);
      }
    }
  }

  void before(size_t i) override { leave(before_, i); }
  void after(size_t i) override { leave(after_, i); }

  void write(const Op& op, const State& state, Op part, int64_t begin, int64_t end) override {
    for (size_t i = 0; i < part.in.size(); ++i) {
      if (op.in[i] == none) continue;
      const ValueId there = on_host_.at(op.in[i]);
      part.in[i] = is_cut(op, op.def->operands, i) ? listing_.elements_of(there, begin, end) : there;
    }
    part.stream = ir::kHostStream;
    const std::vector<std::string_view> names = ir::names_in(op.def->updates);
    std::vector<std::pair<ValueId, ValueId>> pairs;  // on the device, in the slot on the host
    for (size_t u = 0; u < part.updates.size(); ++u) {
      if (std::find(state.updates.begin(), state.updates.end(), u) != state.updates.end()) continue;
      const ValueId in_slot = slot(op, u, ir::Space::host, turn(), end - begin);
      if (ir::place_of(names[u], op.def->overwrites) < 0) copy("copy_out", op, part.updates[u], in_slot);
      pairs.emplace_back(part.updates[u], in_slot);
      part.updates[u] = in_slot;
    }
    const std::vector<ValueId> results = std::exchange(part.out, {});  // parts of what lies on the device
    std::vector<std::string> made_there;
    for (const ValueId id : op.out) made_there.push_back(listing_.value(id).name + ".host");
    const std::vector<ValueId> made = listing_.append(std::move(part), made_there);
    for (size_t o = 0; o < results.size(); ++o) {
      Op in = op_beside("copy_in", made[o], op);
      in.out = {results[o]};
      listing_.append(std::move(in), {""});
    }
    for (const auto& [device, in_slot] : pairs) copy("copy_in", op, in_slot, device);
  }

  struct Leaving {
    ValueId read = none;
    Op copy;
    bool in_slices = false;  // a gradient
    size_t first_read = 0;   // by the op of that index
  };
  using At = std::map<size_t, std::vector<Leaving>>;  // by op
  void leave(const At& at, size_t i) {
    const auto found = at.find(i);
    if (found == at.end()) return;
    for (const Leaving& leaves : found->second)
      on_host_[leaves.read] = listing_.append(leaves.copy, {listing_.value(leaves.read).name + ".host"})[0];
  }

  At before_, after_;
  std::map<ValueId, ValueId> on_host_;
};

}  // namespace

void host_state(ir::Listing& listing, double bytes_per_us) { HostState(listing, bytes_per_us).run(); }

}  // namespace heddle::passes
