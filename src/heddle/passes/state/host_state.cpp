#include "heddle/passes/state/host_state.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "heddle/passes/copies.h"
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
  // Where gradients leave: behind the op that makes them, or before the end of the step where they are summed over
  // its microbatches. What the first update takes as a whole (the norm's factor, the rates) leaves before it.
  void begin(const std::map<size_t, State>& states) override {
    const std::vector<Op>& ops = listing_.ops;
    first_ = states.begin()->first;
    end_ = static_cast<size_t>(
        std::find_if(ops.begin(), ops.end(), [](const Op& op) { return op.phase == ir::Phase::end; }) -
        ops.begin());
    std::set<ValueId> seen;
    for (auto at = states.rbegin(); at != states.rend(); ++at) {
      const Op& op = ops[at->first];
      for (size_t i = 0; i < op.in.size(); ++i) {
        const ValueId id = op.in[i];
        if (id == none || !seen.insert(id).second) continue;
        const int made_by = uses_.writer_index(id);
        if (!is_cut(op, op.def->operands, i)) {
          as_wholes_.push_back({id, op_beside("copy_out", id, op)});
        } else if (made_by < 0) {
          sums_.push_back({id, op_beside("copy_out", id, op)});
        } else {
          made_[static_cast<size_t>(made_by)].push_back({id, op_beside("copy_out", id, op)});
        }
      }
    }
  }

  void before(size_t i) override {
    if (i == end_) leave(sums_);
    if (i == first_) leave(as_wholes_);
  }
  void after(size_t i) override {
    if (const auto at = made_.find(i); at != made_.end()) leave(at->second);
  }

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

  using Leaving = std::vector<std::pair<ValueId, Op>>;
  void leave(const Leaving& values) {
    for (const auto& [id, copy] : values)
      on_host_[id] = listing_.append(copy, {listing_.value(id).name + ".host"})[0];
  }

  size_t first_ = 0, end_ = 0;  // the first op whose state goes; the first of the end
  Leaving sums_, as_wholes_;
  std::map<size_t, Leaving> made_;  // by the op that makes them
  std::map<ValueId, ValueId> on_host_;
};

}  // namespace

void host_state(ir::Listing& listing, double bytes_per_us) { HostState(listing, bytes_per_us).run(); }

}  // namespace heddle::passes
