// place_copies, recall_copies and place_rows: which copies there are, and which rows go to them. The host chooses.
//
// Where the host doesn't read the memory of the ranks' rows, it chooses in the order of the stream
// (RowWork::on_host): it goes on meanwhile, and learns of the choice with the counts of the slots, of which it
// waits for anyway.
#include <algorithm>

#include "heddle/base/error.h"
#include "heddle/comm/exchange/parcels.h"
#include "heddle/comm/exchange/places.h"
#include "heddle/comm/exchange/scratch.h"
#include "heddle/comm/placement/copies.h"
#include "heddle/comm/placement/placement.h"
#include "heddle/device/batch.h"
#include "heddle/device/host_copies.h"
#include "heddle/device/row_work.h"

namespace heddle::comm {

namespace {

using device::HostCopies;
using device::KernelCall;
using device::TensorView;

/// What a group shares: `slots` of all ranks, copies among them.
struct Slots {
  explicit Slots(const ir::Attributes& a)
      : experts(a.integer("experts")),
        copies(a.integer("copies")),
        holders(a.integer("ranks") / a.integer("slices")),
        own(experts / holders),
        count(experts + holders * copies) {}
  int64_t of(int64_t expert) const { return expert / own * (own + copies) + expert % own; }
  int64_t experts, copies, holders, own, count;
};

/// So many rows of an expert, the next to come, go to that slot.
struct Run {
  int64_t slot, rows;
};
using Runs = std::vector<std::vector<Run>>;  // by expert, in their order

/// The same as PutInSlots has them: where each expert's runs begin, their slots, how far they go.
int64_t numbers_of_runs(const Slots& slots) { return slots.experts + 1 + 2 * slots.count; }
void write(const Runs& runs_E, const Slots& slots, int32_t* first_E) {
  int32_t *slot_R = first_E + slots.experts + 1, *end_R = slot_R + slots.count;
  int32_t count = 0;
  for (const std::vector<Run>& runs : runs_E) {
    *first_E++ = count;
    int64_t end = 0;
    for (const Run& run : runs) {
      slot_R[count] = static_cast<int32_t>(run.slot);
      end_R[count++] = static_cast<int32_t>(end += run.rows);
    }
  }
  *first_E = count;
}
void put_in_slots(const KernelCall& call, const Slots& slots, const int32_t* runs) {
  const TensorView& experts_Tk = call.in[0];
  const int32_t* slot_R = runs + slots.experts + 1;
  call.row_work->put_in_slots({.experts = experts_Tk.as<const int32_t>(),
                               .slots = call.out[0].as<int32_t>(),
                               .first_E = runs,
                               .slot_R = slot_R,
                               .end_R = slot_R + slots.count,
                               .choices = experts_Tk.elements(),
                               .E = slots.experts},
                              call.stream);
}
void count_experts(const KernelCall& call, int64_t experts, int32_t* rows_E) {
  const TensorView& experts_Tk = call.in[0];
  call.row_work->count_experts(
      {.experts = experts_Tk.as<const int32_t>(), .rows_E = rows_E, .choices = experts_Tk.elements(), .E = experts},
      call.stream);
}

Holders holders_of(const KernelCall& call) {
  return {.slices = call.op->attributes.integer("slices"),
          .copies = call.op->attributes.integer("copies"),
          .node_of = Places(*call.communicator).node};
}

/// Rows of all sources; what comes of them on the host: which expert is in each slot, and this rank's runs.
struct PlaceScratch {
  PlaceScratch(Carver& room, const ir::Attributes& a) {
    const Slots slots(a);
    rows_SE = room.take<int32_t>(a.integer("ranks") * slots.experts);
    made = room.take<int32_t>(slots.count + numbers_of_runs(slots));
  }
  std::span<int32_t> rows_SE, made;
};

/// Of this rank's rows for an expert the first stay with its owner, the next are those of its copies in order.
Runs runs_of(const Placement& placement, const Loads& loads, int64_t source) {
  Runs runs_E;
  for (int64_t e = 0; e < loads.experts; ++e) runs_E.push_back({{placement.slot_of(e), loads.at(source, e)}});
  for (const Placement::Copy& copy : placement.copies()) {
    std::vector<Run>& runs = runs_E[static_cast<size_t>(copy.expert)];
    const int64_t rows = copy.rows_S[static_cast<size_t>(source)];
    runs.front().rows -= rows;
    runs.push_back({copy.slot, rows});
  }
  return runs_E;
}

/// experts -> slots, placement.
void place_copies(const KernelCall& call) {
  const ir::Attributes& a = call.op->attributes;
  Communicator& communicator = *call.communicator;
  const Slots slots(a);
  const int64_t ranks = a.integer("ranks"), experts = slots.experts;
  HEDDLE_CHECK(communicator.size() == ranks, "copies among {} ranks on a communicator of {}", ranks,
               communicator.size());
  Carver carver(call.scratch);
  const PlaceScratch room(carver, a);
  int32_t* own = room.rows_SE.data() + communicator.rank() * experts;
  count_experts(call, experts, own);
  Parcels parcels;
  for (int64_t r = 0; r < ranks; ++r) {
    if (r == communicator.rank()) continue;
    parcels.send(r, static_cast<const int32_t*>(own), experts);
    parcels.receive(r, room.rows_SE.data() + r * experts, experts);
  }
  parcels.exchange(communicator);

  const auto choose = [slots, ranks, holders = holders_of(call), rules = placement_rules(a),
                       rank = communicator.rank()](const std::byte* from, std::byte* to) {
    const auto rows = static_cast<size_t>(ranks * slots.experts);
    const Loads loads{ranks, slots.experts, {reinterpret_cast<const int32_t*>(from), rows}};
    const Placement placement = choose_placement(loads, holders, rules);
    auto* made = reinterpret_cast<int32_t*>(to);
    std::copy(placement.expert_of_slot().begin(), placement.expert_of_slot().end(), made);
    write(runs_of(placement, loads, rank), slots, made + slots.count);
  };
  call.row_work->on_host({.from = room.rows_SE.data(),
                          .to = room.made.data(),
                          .from_bytes = static_cast<int64_t>(room.rows_SE.size_bytes()),
                          .to_bytes = static_cast<int64_t>(room.made.size_bytes()),
                          .run = choose},
                         call.stream);
  call.row_work->copy(call.out[1].data, room.made.data(), slots.count * 4, call.stream);
  put_in_slots(call, slots, room.made.data() + slots.count);
}

int64_t place_scratch(const ir::Listing&, const ir::Op& op, const ir::RowCounts&) {
  Carver room(nullptr);
  [[maybe_unused]] const PlaceScratch layout(room, op.attributes);
  return room.bytes();
}

constexpr int64_t kShares = 65536;  // one whole

/// -> placement, shares.
void recall_copies(const KernelCall& call) {
  const ir::Attributes& a = call.op->attributes;
  const Slots slots(a);
  const Holders holders = holders_of(call);
  const auto at = call.batch->expert_rows.find(call.op->layer);
  const std::vector<int32_t> rows_SE =
      at == call.batch->expert_rows.end()
          ? std::vector<int32_t>(holders.node_of.size() * static_cast<size_t>(slots.experts), 0)
          : alike_sources(at->second, std::ssize(holders.node_of), a.integer("rows"));
  const Loads loads{std::ssize(holders.node_of), slots.experts, rows_SE};
  HEDDLE_CHECK(std::ssize(rows_SE) == loads.sources * slots.experts,
               "the rows of {} experts are known, of {} expected", std::ssize(rows_SE) / loads.sources,
               slots.experts);
  const Placement placement = choose_placement(loads, holders, placement_rules(a));
  HostCopies::put(call, call.out[0], placement.expert_of_slot().data());
  std::vector<int32_t> shares(static_cast<size_t>(call.out[1].elements()), 0);
  const int64_t source = call.communicator->rank();
  for (const Placement::Copy& copy : placement.copies()) {
    const int64_t known = loads.at(source, copy.expert);
    shares[static_cast<size_t>(copy.holder * slots.copies + copy.slot % placement.slots_each() - slots.own)] =
        static_cast<int32_t>(copy.rows_S[static_cast<size_t>(source)] * kShares / std::max<int64_t>(1, known));
  }
  HostCopies::put(call, call.out[1], shares.data());
}

/// Of this rank's rows for an expert each copy takes its share; the first stay with the owner.
Runs runs_of(const Slots& slots, const std::vector<int32_t>& expert_of_slot, const std::vector<int32_t>& shares,
             const int32_t* rows_E) {
  Runs runs_E;
  for (int64_t e = 0; e < slots.experts; ++e) runs_E.push_back({{slots.of(e), rows_E[e]}});
  for (int64_t c = 0; c < slots.holders * slots.copies; ++c) {
    const int64_t slot = c / slots.copies * (slots.own + slots.copies) + slots.own + c % slots.copies;
    const int64_t expert = expert_of_slot[static_cast<size_t>(slot)];
    if (expert < 0) continue;
    std::vector<Run>& runs = runs_E[static_cast<size_t>(expert)];
    const int64_t rows = int64_t{rows_E[expert]} * shares[static_cast<size_t>(c)] / kShares;
    runs.front().rows -= rows;
    runs.push_back({slot, rows});
  }
  return runs_E;
}

/// This rank's rows, and the runs that come of them.
struct RowsScratch {
  RowsScratch(Carver& room, const Slots& slots)
      : rows_E(room.take<int32_t>(slots.experts)), runs(room.take<int32_t>(numbers_of_runs(slots))) {}
  std::span<int32_t> rows_E, runs;
};

/// experts, placement, shares -> slots.
void place_rows(const KernelCall& call) {
  const Slots slots(call.op->attributes);
  Carver carver(call.scratch);
  const RowsScratch room(carver, slots);
  count_experts(call, slots.experts, room.rows_E.data());
  const auto on_host = [&](const TensorView& view) {
    const auto* first = HostCopies::on_host(call, view).as<const int32_t>();
    return std::vector<int32_t>(first, first + view.elements());
  };
  const auto share_out = [slots, placement = on_host(call.in[1]), shares = on_host(call.in[2])](
                             const std::byte* from, std::byte* to) {
    write(runs_of(slots, placement, shares, reinterpret_cast<const int32_t*>(from)), slots,
          reinterpret_cast<int32_t*>(to));
  };
  call.row_work->on_host({.from = room.rows_E.data(),
                          .to = room.runs.data(),
                          .from_bytes = static_cast<int64_t>(room.rows_E.size_bytes()),
                          .to_bytes = static_cast<int64_t>(room.runs.size_bytes()),
                          .run = share_out},
                         call.stream);
  put_in_slots(call, slots, room.runs.data());
}

int64_t rows_scratch(const ir::Listing&, const ir::Op& op, const ir::RowCounts&) {
  Carver room(nullptr);
  [[maybe_unused]] const RowsScratch layout(room, Slots(op.attributes));
  return room.bytes();
}

}  // namespace

PlacementRules placement_rules(const ir::Attributes& a) {
  return {.costs = {.row_ps = a.integer("row_ps"),
                    .row_within_ps = a.integer("row_within_ps"),
                    .row_across_ps = a.integer("row_across_ps"),
                    .copy_within_ps = a.integer("copy_within_ps"),
                    .copy_across_ps = a.integer("copy_across_ps")},
          .whole_sources = a.integer("whole") != 0};
}

const std::vector<Collective>& placing_kernels() {
  static const std::vector<Collective> list{{"place_copies", place_copies, place_scratch},
                                            {"recall_copies", recall_copies},
                                            {"place_rows", place_rows, rows_scratch}};
  return list;
}

}  // namespace heddle::comm
