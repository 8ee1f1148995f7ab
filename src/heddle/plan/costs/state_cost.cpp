#include "heddle/plan/costs/state_cost.h"

#include <algorithm>
#include <map>
#include <string>

#include "heddle/ir/walk/streams.h"
#include "heddle/plan/costs/durations.h"

namespace heddle::plan {

namespace {

// The times at which values, or parts of them, have last been written and read.
class Times {
 public:
  explicit Times(const ir::Listing& listing) : listing_(listing) {}

  double free_to_read(ir::ValueId id) const {
    double at = 0;
    each_like(id, [&](const Use& use) { at = std::max(at, use.written); });
    return at;
  }
  double free_to_write(ir::ValueId id) const {
    double at = 0;
    each_like(id, [&](const Use& use) { at = std::max({at, use.written, use.read}); });
    return at;
  }
  void read(ir::ValueId id, double at) { use(id).read = std::max(use(id).read, at); }
  void write(ir::ValueId id, double at) { use(id).written = at; }

 private:
  struct Use {
    ir::ValueId id = ir::none;
    double written = 0, read = 0;
  };
  template <class Visit>
  void each_like(ir::ValueId id, const Visit& visit) const {
    const auto at = of_base_.find(listing_.base(id));
    if (at == of_base_.end()) return;
    for (const Use& use : at->second) {
      if (listing_.overlap(use.id, id)) visit(use);
    }
  }
  Use& use(ir::ValueId id) {
    std::vector<Use>& uses = of_base_[listing_.base(id)];
    const auto at = std::find_if(uses.begin(), uses.end(), [&](const Use& use) { return use.id == id; });
    return at != uses.end() ? *at : uses.emplace_back(Use{id});
  }

  const ir::Listing& listing_;
  std::map<ir::ValueId, std::vector<Use>> of_base_;
};

// The time that the end goes on behind the backward, each stream in its order.
double end_us(const ir::Listing& listing, const passes::Durations& duration_us) {
  Times times(listing);
  std::map<std::string, double> stream_free;
  double backward = 0, end = 0;
  for (const ir::Op& op : listing.ops) {
    const bool ends = op.phase == ir::Phase::end;
    if ((!ends && op.phase != ir::Phase::I && op.phase != ir::Phase::W) || op.def->drops || op.def->flips) continue;
    double& free = stream_free[ir::stream_name(op)];
    double start = free;
    for (const ir::ValueId id : op.in) {
      if (id != ir::none) start = std::max(start, times.free_to_read(id));
    }
    for (const auto* written : {&op.out, &op.updates}) {
      for (const ir::ValueId id : *written) start = std::max(start, times.free_to_write(id));
    }
    free = start + duration_us(listing, op);
    for (const ir::ValueId id : op.in) {
      if (id != ir::none) times.read(id, free);
    }
    for (const auto* written : {&op.out, &op.updates}) {
      for (const ir::ValueId id : *written) times.write(id, free);
    }
    (ends ? end : backward) = std::max(ends ? end : backward, free);
  }
  return std::max(0.0, end - backward);
}

}  // namespace

StateCost state_cost(const ir::Listing& listing, StateResidency residency, const passes::Durations& duration_us) {
  StateCost cost;
  cost.residency = residency;
  const ir::FixedRows rows;
  for (ir::ValueId id = 0; id < std::ssize(listing.values); ++id) {
    const ir::Value& value = listing.value(id);
    if (value.role != ir::Role::optimizer || value.part_of != ir::none) continue;
    (value.space == ir::Space::device ? cost.device_bytes : cost.host_bytes) += listing.bytes(id, rows);
  }
  for (const ir::Op& op : listing.ops) {
    if (op.phase != ir::Phase::end) continue;
    for (const ir::ValueId id : op.out) {
      if (listing.value(id).space == ir::Space::host) cost.host_bytes += listing.bytes(id, rows);
    }
  }
  cost.end_s = end_us(listing, duration_us) * 1e-6;
  return cost;
}

std::vector<StateCost> state_costs(const model::ModelConfig& config, const Plan& plan) {
  std::vector<StateCost> costs;
  const passes::Durations duration_us =
      plan.durations ? plan.durations : nominal_durations(plan.parallel.exchange, plan.rates);
  for (const Word<StateResidency>& residency : words_of(StateResidency{})) {
    if (residency.value == StateResidency::cheapest) continue;
    Plan with = plan;
    with.memory.optimizer = residency.value;
    with.evaluates = with.predicts = false;
    const Lowered lowered = lower(config, with);
    StateCost& most = costs.emplace_back();
    most.residency = residency.value;
    for (int r = 0; r < plan.mesh.pp; ++r) {
      const StateCost own = state_cost(lowered.program.listings[r], residency.value, duration_us);
      most.device_bytes = std::max(most.device_bytes, own.device_bytes);
      most.host_bytes = std::max(most.host_bytes, own.host_bytes);
      most.end_s = std::max(most.end_s, own.end_s);
    }
  }
  return costs;
}

}  // namespace heddle::plan
