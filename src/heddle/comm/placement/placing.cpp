// The placing ops: place_copies, recall_copies and place_rows decide which replicas there are, and which rows go to
// them; place_experts decides which rows go where without any. The host chooses.
//
// Where the host doesn't read the memory of the ranks' rows, it chooses in the order of the stream
// (RowWork::on_host). It goes on meanwhile, and learns of the choice with the counts of the slots, which it waits
// for anyway.
#include <algorithm>

#include "heddle/base/error.h"
#include "heddle/comm/exchange/piece_list.h"
#include "heddle/comm/exchange/places.h"
#include "heddle/comm/exchange/scratch.h"
#include "heddle/comm/placement/expert_placement.h"
#include "heddle/comm/placement/placement.h"
#include "heddle/comm/placement/replica_kernels.h"
#include "heddle/comm/placement/tally.h"
#include "heddle/device/host_copies.h"

namespace heddle::comm {

namespace {

using device::HostCopies;
using device::KernelCall;
using device::TensorView;

/// The slots that a group shares: `slots` of all ranks, replicas among them.
struct Slots {
  explicit Slots(const ir::Attributes& a)
      : experts(a.integer("experts")),
        replicas(a.integer("copies")),
        holders(a.integer("ranks") / a.integer("slices")),
        own(experts / holders),
        count(experts + holders * replicas) {}
  int64_t of(int64_t position) const { return position / own * (own + replicas) + position % own; }
  int64_t figures() const { return holders + kPlacedFigures; }
  int64_t experts, replicas, holders, own, count;
};

/// Runs as PutInSlots has them, one array behind the other: where each expert's begin, their slots, how far they
/// go.
template <class Number>
struct RunArrays {
  RunArrays(Number* at, const Slots& slots)
      : first_E(at), slot_R(first_E + slots.experts + 1), end_R(slot_R + slots.count) {}
  Number *first_E, *slot_R, *end_R;
};
int64_t numbers_of_runs(const Slots& slots) { return slots.experts + 1 + 2 * slots.count; }

void write(const Runs& runs_E, const Slots& slots, int32_t* numbers) {
  const RunArrays to(numbers, slots);
  int32_t count = 0, expert = 0;
  for (const std::vector<Run>& runs : runs_E) {
    to.first_E[expert++] = count;
    int64_t end = 0;
    for (const Run& run : runs) {
      to.slot_R[count] = static_cast<int32_t>(run.slot);
      to.end_R[count++] = static_cast<int32_t>(end += run.rows);
    }
  }
  to.first_E[expert] = count;
}
void put_in_slots(const KernelCall& call, const Slots& slots, const int32_t* numbers) {
  const TensorView& experts_Tk = call.in[0];
  const RunArrays runs(numbers, slots);
  call.row_work->put_in_slots({.experts = experts_Tk.as<const int32_t>(),
                               .slots = call.out[0].as<int32_t>(),
                               .first_E = runs.first_E,
                               .slot_R = runs.slot_R,
                               .end_R = runs.end_R,
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
          .replicas = call.op->attributes.integer("copies"),
          .node_of = Places(*call.communicator).node};
}

/// The numbers that the host reads, and what it makes of them; in both the layer's figures come first.
struct HostWorkScratch {
  HostWorkScratch(Carver& room, const Slots& slots, int64_t rows, int64_t numbers) {
    const int64_t start = room.bytes();
    placed = room.take<double>(slots.figures());
    rows_in = room.take<int32_t>(rows);
    const int64_t middle = room.bytes();
    placed_then = room.take<double>(slots.figures());
    made = room.take<int32_t>(numbers);
    from_bytes = middle - start;
    to_bytes = room.bytes() - middle;
  }
  std::span<double> placed, placed_then;
  std::span<int32_t> rows_in, made;
  int64_t from_bytes, to_bytes;
};

/// Lets `run` compute the numbers from the rows, in the order of the stream; it adds to the figures of
/// call.updates[0].
template <class Run>
void work_on_host(const KernelCall& call, const HostWorkScratch& room, const Slots& slots, Run run) {
  const int64_t head = Carver::padded(slots.figures() * 8);
  const auto with_figures = [run, head, figures = slots.figures(), first = call.overwrite](const std::byte* from,
                                                                                           std::byte* to) {
    auto* placed = reinterpret_cast<double*>(to);
    if (first) {
      std::fill_n(placed, figures, 0.0);
    } else {
      std::copy_n(reinterpret_cast<const double*>(from), figures, placed);
    }
    run(reinterpret_cast<const int32_t*>(from + head), reinterpret_cast<int32_t*>(to + head), placed);
  };
  const TensorView& figures = call.updates[0];
  if (!call.overwrite) call.row_work->copy(room.placed.data(), figures.data, slots.figures() * 8, call.stream);
  call.row_work->on_host({.from = room.placed.data(),
                          .to = room.placed_then.data(),
                          .from_bytes = room.from_bytes,
                          .to_bytes = room.to_bytes,
                          .run = with_figures},
                         call.stream);
  call.row_work->copy(figures.data, room.placed_then.data(), slots.figures() * 8, call.stream);
}

/// Runs by experts, from runs by homes.
Runs by_expert(const Runs& runs_H, const ExpertPlacement& positions) {
  Runs runs_E;
  for (int64_t e = 0; e < std::ssize(runs_H); ++e) runs_E.push_back(runs_H[positions.of(e)]);
  return runs_E;
}

/// The runs of this rank's rows, by homes. The first rows for an expert stay with its owner, the next are those of
/// its replicas in order.
Runs runs_of(const Placement& placement, const Loads& loads, int64_t source) {
  Runs runs_E;
  for (int64_t e = 0; e < loads.experts; ++e) runs_E.push_back({{placement.slot_of(e), loads.at(source, e)}});
  for (const Placement::Replica& replica : placement.replicas()) {
    std::vector<Run>& runs = runs_E[static_cast<size_t>(replica.expert)];
    const int64_t rows = replica.rows_S[source];
    runs.front().rows -= rows;
    runs.push_back({replica.slot, rows});
  }
  return runs_E;
}

/// Scratch for the rows of all sources: which expert is in each slot, and this rank's runs.
HostWorkScratch place_room(Carver& room, const ir::Attributes& a) {
  const Slots slots(a);
  return {room, slots, a.integer("ranks") * slots.experts, slots.count + numbers_of_runs(slots)};
}

/// experts, homes -> slots, placement; what comes of it into `placed`.
void place_copies(const KernelCall& call) {
  const ir::Attributes& a = call.op->attributes;
  Communicator& communicator = *call.communicator;
  const Slots slots(a);
  const int64_t ranks = a.integer("ranks"), experts = slots.experts;
  HEDDLE_CHECK(communicator.size() == ranks, "copies among {} ranks on a communicator of {}", ranks,
               communicator.size());
  Carver carver(call.scratch);
  const HostWorkScratch room = place_room(carver, a);
  int32_t* own = room.rows_in.data() + communicator.rank() * experts;
  count_experts(call, experts, own);
  PieceList piece_list;
  for (int64_t r = 0; r < ranks; ++r) {
    if (r == communicator.rank()) continue;
    piece_list.send(r, static_cast<const int32_t*>(own), experts);
    piece_list.receive(r, room.rows_in.data() + r * experts, experts);
  }
  piece_list.exchange(communicator);

  work_on_host(call, room, slots,
               [slots, ranks, holders = holders_of(call), rules = placement_rules(a), rank = communicator.rank(),
                positions = ExpertPlacement::in(call, 1)](const int32_t* rows_SE, int32_t* made, double* figures) {
                 const std::vector<int32_t> rows_SH = positions.by_position(
                     std::span<const int32_t>(rows_SE, static_cast<size_t>(ranks * slots.experts)), slots.experts);
                 const Loads loads{ranks, slots.experts, rows_SH};
                 const Placement placement = choose_placement(loads, holders, rules);
                 std::copy(placement.expert_of_slot().begin(), placement.expert_of_slot().end(), made);
                 positions.name_experts({made, static_cast<size_t>(slots.count)});
                 const Runs runs_H = runs_of(placement, loads, rank);
                 write(by_expert(runs_H, positions), slots, made + slots.count);
                 const bool uneven = is_uneven(Placement(holders, slots.experts).rows_of(loads));
                 tally({.runs_H = runs_H,
                        .expert_of_slot = placement.expert_of_slot(),
                        .with_replicas = PlacedFigure::by_counts,
                        .without = uneven ? PlacedFigure::not_worth : PlacedFigure::even},
                       holders, rank, figures);
               });
  call.row_work->copy(call.out[1].data, room.made.data(), slots.count * 4, call.stream);
  put_in_slots(call, slots, room.made.data() + slots.count);
}

int64_t place_scratch(const ir::Listing&, const ir::Op& op, const ir::RowCounts&) {
  Carver room(nullptr);
  place_room(room, op.attributes);
  return room.bytes();
}

constexpr int64_t kShares = 65536;  // one whole

/// Rows that each expert had in the last steps; all zero where nothing is known.
std::span<const double> expert_rows(const KernelCall& call, size_t operand) {
  const TensorView rows_E = HostCopies::on_host(call, call.in[operand]);
  return {rows_E.as<const double>(), static_cast<size_t>(rows_E.elements())};
}

/// expert_rows, homes -> placement, shares.
void recall_copies(const KernelCall& call) {
  const ir::Attributes& a = call.op->attributes;
  const Slots slots(a);
  const Holders holders = holders_of(call);
  const ExpertPlacement positions = ExpertPlacement::in(call, 1);
  const std::vector<int32_t> rows_SH = alike_sources(positions.by_position(expert_rows(call, 0), slots.experts),
                                                     std::ssize(holders.node_of), a.integer("rows"));
  const Loads loads{std::ssize(holders.node_of), slots.experts, rows_SH};
  const Placement placement = choose_placement(loads, holders, placement_rules(a));
  std::vector<int32_t> expert_of_slot = placement.expert_of_slot();
  positions.name_experts(expert_of_slot);
  HostCopies::put(call, call.out[0], expert_of_slot.data());
  std::vector<int32_t> shares(static_cast<size_t>(call.out[1].elements()), 0);
  const int64_t source = call.communicator->rank();
  for (const Placement::Replica& replica : placement.replicas()) {
    const int64_t known = loads.at(source, replica.expert);
    shares[static_cast<size_t>(replica.holder * slots.replicas + replica.slot % placement.slots_each() -
                               slots.own)] =
        static_cast<int32_t>(replica.rows_S[source] * kShares / std::max<int64_t>(1, known));
  }
  HostCopies::put(call, call.out[1], shares.data());
}

/// The runs of this rank's rows for each expert. Each replica takes its share; the first rows stay with the owner.
Runs runs_of(const Slots& slots, const std::vector<int32_t>& expert_of_slot, const std::vector<int32_t>& shares,
             const int32_t* rows_E, const ExpertPlacement& positions) {
  Runs runs_E;
  for (int64_t e = 0; e < slots.experts; ++e) runs_E.push_back({{slots.of(positions.of(e)), rows_E[e]}});
  for (int64_t c = 0; c < slots.holders * slots.replicas; ++c) {
    const int64_t slot = c / slots.replicas * (slots.own + slots.replicas) + slots.own + c % slots.replicas;
    const int64_t expert = expert_of_slot[slot];
    if (expert < 0) continue;
    std::vector<Run>& runs = runs_E[expert];
    const int64_t rows = int64_t{rows_E[expert]} * shares[c] / kShares;
    runs.front().rows -= rows;
    runs.push_back({slot, rows});
  }
  return runs_E;
}

/// Scratch for the runs of this rank's rows for each expert.
HostWorkScratch rows_room(Carver& room, const Slots& slots) {
  return {room, slots, slots.experts, numbers_of_runs(slots)};
}

/// experts, placement, shares, expert_rows, homes -> slots; what comes of it into `placed`.
void place_rows(const KernelCall& call) {
  const Slots slots(call.op->attributes);
  Carver carver(call.scratch);
  const HostWorkScratch room = rows_room(carver, slots);
  count_experts(call, slots.experts, room.rows_in.data());
  const auto on_host = [&](const TensorView& view) {
    const auto* first = HostCopies::on_host(call, view).as<const int32_t>();
    return std::vector<int32_t>(first, first + view.elements());
  };
  const std::span<const double> recent_E = expert_rows(call, 3);
  const bool known = std::any_of(recent_E.begin(), recent_E.end(), [](double rows) { return rows > 0; });
  work_on_host(call, room, slots,
               [slots, placement = on_host(call.in[1]), shares = on_host(call.in[2]), holders = holders_of(call),
                rank = call.communicator->rank(), known,
                positions = ExpertPlacement::in(call, 4)](const int32_t* rows_E, int32_t* made, double* figures) {
                 const Runs runs_E = runs_of(slots, placement, shares, rows_E, positions);
                 write(runs_E, slots, made);
                 Runs runs_H;
                 for (int64_t h = 0; h < slots.experts; ++h)
                   runs_H.push_back(runs_E[static_cast<size_t>(positions.expert_at(h))]);
                 tally({.runs_H = runs_H,
                        .expert_of_slot = placement,
                        .with_replicas = PlacedFigure::by_history,
                        .without = known ? PlacedFigure::not_worth : PlacedFigure::even},
                       holders, rank, figures);
               });
  put_in_slots(call, slots, room.made.data());
}

int64_t rows_scratch(const ir::Listing&, const ir::Op& op, const ir::RowCounts&) {
  Carver room(nullptr);
  rows_room(room, Slots(op.attributes));
  return room.bytes();
}

/// experts, homes -> slots, placement. What a choice has here is known before it is made.
void place_experts(const KernelCall& call) {
  const Slots slots(call.op->attributes);
  const ExpertPlacement positions = ExpertPlacement::in(call, 1);
  std::vector<int32_t> expert_at(static_cast<size_t>(slots.experts));
  Runs runs_E;
  for (int64_t e = 0; e < slots.experts; ++e) {
    expert_at[positions.of(e)] = static_cast<int32_t>(e);
    runs_E.push_back({{positions.of(e), call.in[0].elements()}});
  }
  HostCopies::put(call, call.out[1], expert_at.data());
  std::vector<int32_t> numbers(static_cast<size_t>(numbers_of_runs(slots)));
  write(runs_E, slots, numbers.data());
  auto* const runs = reinterpret_cast<int32_t*>(call.scratch);
  call.row_work->upload(runs, numbers.data(), std::ssize(numbers) * 4, call.stream);
  put_in_slots(call, slots, runs);
}

int64_t experts_scratch(const ir::Listing&, const ir::Op& op, const ir::RowCounts&) {
  return numbers_of_runs(Slots(op.attributes)) * 4;
}

}  // namespace

PlacementRules placement_rules(const ir::Attributes& a) {
  return {.costs = {.row_ps = a.integer("row_ps"),
                    .row_within_ps = a.integer("row_within_ps"),
                    .row_across_ps = a.integer("row_across_ps"),
                    .replica_within_ps = a.integer("copy_within_ps"),
                    .replica_across_ps = a.integer("copy_across_ps")},
          .whole_sources = a.integer("whole") != 0};
}

const std::vector<Collective>& placing_kernels() {
  static const std::vector<Collective> list{{"place_copies", place_copies, place_scratch},
                                            {"recall_copies", recall_copies},
                                            {"place_rows", place_rows, rows_scratch},
                                            {"place_experts", place_experts, experts_scratch}};
  return list;
}

}  // namespace heddle::comm
