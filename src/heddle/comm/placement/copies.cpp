// place_copies, fetch_copies and return_copies on memory that the host reads: it chooses, and says what goes where.
#include "heddle/comm/placement/copies.h"

#include <algorithm>

#include "heddle/base/error.h"
#include "heddle/comm/exchange/parcels.h"
#include "heddle/comm/exchange/places.h"
#include "heddle/comm/placement/placement.h"
#include "heddle/comm/placement/relay.h"
#include "heddle/comm/placement/tally.h"
#include "heddle/device/batch.h"
#include "heddle/device/row_work.h"

namespace heddle::comm {

namespace {

using device::KernelCall;
using device::TensorView;

/// So many rows of an expert, the next to come, go to that slot.
struct Run {
  int64_t slot, rows;
};
/// Slots of the chosen experts; of each the runs, in their order.
void put_in_slots(const TensorView& experts_Tk, const TensorView& slots_Tk, std::vector<std::vector<Run>> runs_E) {
  const auto* chosen = experts_Tk.as<const int32_t>();
  for (std::vector<Run>& runs : runs_E) std::reverse(runs.begin(), runs.end());  // the next is the last
  for (int64_t i = 0; i < experts_Tk.elements(); ++i) {
    std::vector<Run>& runs = runs_E[static_cast<size_t>(chosen[i])];
    while (runs.back().rows == 0) runs.pop_back();
    slots_Tk.as<int32_t>()[i] = static_cast<int32_t>(runs.back().slot);
    --runs.back().rows;
  }
}

void count_rows(const TensorView& experts_Tk, int32_t* rows_E, int64_t experts) {
  std::fill_n(rows_E, experts, 0);
  const auto* chosen = experts_Tk.as<const int32_t>();
  for (int64_t i = 0; i < experts_Tk.elements(); ++i) ++rows_E[chosen[i]];
}

Holders holders_of(const KernelCall& call) {
  return {.slices = call.op->attributes.integer("slices"),
          .copies = call.op->attributes.integer("copies"),
          .node_of = Places(*call.communicator).node};
}

std::span<const int32_t> whole_numbers(const TensorView& view) {
  return {view.as<const int32_t>(), static_cast<size_t>(view.elements())};
}

/// experts -> slots, placement; what comes of it into `placed`.
void place_copies(const KernelCall& call) {
  const ir::Attributes& a = call.op->attributes;
  Communicator& communicator = *call.communicator;
  const TensorView &experts_Tk = call.in[0], &slots_Tk = call.out[0], &expert_of_slot = call.out[1];
  const int64_t ranks = a.integer("ranks"), experts = a.integer("experts");
  HEDDLE_CHECK(communicator.size() == ranks, "copies among {} ranks on a communicator of {}", ranks,
               communicator.size());
  auto* rows_SE = reinterpret_cast<int32_t*>(call.scratch);
  int32_t* own = rows_SE + communicator.rank() * experts;
  count_rows(experts_Tk, own, experts);
  Parcels parcels;
  for (int64_t r = 0; r < ranks; ++r) {
    if (r == communicator.rank()) continue;
    parcels.send(r, static_cast<const int32_t*>(own), experts);
    parcels.receive(r, rows_SE + r * experts, experts);
  }
  parcels.exchange(communicator);

  const Holders holders = holders_of(call);
  const Loads loads{ranks, experts, {rows_SE, static_cast<size_t>(ranks * experts)}};
  const Placement placement = choose_placement(loads, holders, placement_rules(a));
  std::copy(placement.expert_of_slot().begin(), placement.expert_of_slot().end(), expert_of_slot.as<int32_t>());

  // Of this rank's rows for an expert the first stay with its owner, the next are those of its copies in order.
  std::vector<std::vector<Run>> runs_E(static_cast<size_t>(experts));
  for (int64_t e = 0; e < experts; ++e) runs_E[static_cast<size_t>(e)] = {{placement.slot_of(e), own[e]}};
  for (const Placement::Copy& copy : placement.copies()) {
    std::vector<Run>& runs = runs_E[static_cast<size_t>(copy.expert)];
    const int64_t rows = copy.rows_S[static_cast<size_t>(communicator.rank())];
    runs.front().rows -= rows;
    runs.push_back({copy.slot, rows});
  }
  put_in_slots(experts_Tk, slots_Tk, std::move(runs_E));
  tally({.experts = whole_numbers(experts_Tk),
         .slots = whole_numbers(slots_Tk),
         .expert_of_slot = placement.expert_of_slot(),
         .with_copies = PlacedFigure::by_counts,
         .without = is_uneven(placement.rows_of(loads)) ? PlacedFigure::not_worth : PlacedFigure::even,
         .first = call.overwrite},
        holders, communicator.rank(), call.updates[0].as<double>());
}

constexpr int64_t kShares = 65536;  // one whole

/// -> placement, shares.
void recall_copies(const KernelCall& call) {
  const ir::Attributes& a = call.op->attributes;
  const int64_t experts = a.integer("experts"), rows = a.integer("rows");
  const TensorView &expert_of_slot = call.out[0], &shares = call.out[1];
  const Holders holders = holders_of(call);
  const auto at = call.batch->expert_rows.find(call.op->layer);
  const std::vector<int32_t> rows_SE =
      at == call.batch->expert_rows.end()
          ? std::vector<int32_t>(holders.node_of.size() * static_cast<size_t>(experts), 0)
          : alike_sources(at->second, std::ssize(holders.node_of), rows);
  const Loads loads{std::ssize(holders.node_of), experts, rows_SE};
  HEDDLE_CHECK(std::ssize(rows_SE) == loads.sources * experts, "the rows of {} experts are known, of {} expected",
               std::ssize(rows_SE) / loads.sources, experts);
  const Placement placement = choose_placement(loads, holders, placement_rules(a));
  std::copy(placement.expert_of_slot().begin(), placement.expert_of_slot().end(), expert_of_slot.as<int32_t>());
  std::fill_n(shares.as<int32_t>(), shares.elements(), 0);
  const int64_t own = experts / holders.count(), source = call.communicator->rank();
  for (const Placement::Copy& copy : placement.copies()) {
    const int64_t known = loads.at(source, copy.expert);
    shares.as<int32_t>()[copy.holder * holders.copies + copy.slot % placement.slots_each() - own] =
        static_cast<int32_t>(copy.rows_S[static_cast<size_t>(source)] * kShares / std::max<int64_t>(1, known));
  }
}

/// experts, placement, shares -> slots; what comes of it into `placed`.
void place_rows(const KernelCall& call) {
  const ir::Attributes& a = call.op->attributes;
  const int64_t experts = a.integer("experts"), copies = a.integer("copies");
  const int64_t count = a.integer("ranks") / a.integer("slices"), own = experts / count, each = own + copies;
  const auto* expert_of_slot = call.in[1].as<const int32_t>();
  auto* rows_E = reinterpret_cast<int32_t*>(call.scratch);
  count_rows(call.in[0], rows_E, experts);
  std::vector<std::vector<Run>> runs_E(static_cast<size_t>(experts));
  for (int64_t e = 0; e < experts; ++e) runs_E[static_cast<size_t>(e)] = {{e / own * each + e % own, rows_E[e]}};
  for (int64_t c = 0; c < count * copies; ++c) {
    const int64_t slot = c / copies * each + own + c % copies, expert = expert_of_slot[slot];
    if (expert < 0) continue;
    std::vector<Run>& runs = runs_E[static_cast<size_t>(expert)];
    const int64_t rows = int64_t{rows_E[expert]} * call.in[2].as<const int32_t>()[c] / kShares;
    runs.front().rows -= rows;
    runs.push_back({slot, rows});
  }
  put_in_slots(call.in[0], call.out[0], std::move(runs_E));
  tally({.experts = whole_numbers(call.in[0]),
         .slots = whole_numbers(call.out[0]),
         .expert_of_slot = whole_numbers(call.in[1]),
         .with_copies = PlacedFigure::by_history,
         .without = call.batch->expert_rows.contains(call.op->layer) ? PlacedFigure::not_worth : PlacedFigure::even,
         .first = call.overwrite},
        holders_of(call), call.communicator->rank(), call.updates[0].as<double>());
}

int64_t rows_scratch(const ir::Listing&, const ir::Op& op, const ir::RowCounts&) {
  return op.attributes.integer("experts") * 4;
}

int64_t place_scratch(const ir::Listing&, const ir::Op& op, const ir::RowCounts&) {
  return op.attributes.integer("ranks") * op.attributes.integer("experts") * 4;
}

/// What a placement says of the copies of a weight: which go from where to where.
class Moves {
 public:
  Moves(const KernelCall& call, const TensorView& placement, int64_t own, int64_t copies)
      : slices_(call.op->attributes.integer("slices")),
        holders_(call.communicator->size() / slices_),
        own_(own),
        copies_(copies),
        expert_of_slot_(placement.as<const int32_t>()) {
    HEDDLE_CHECK(placement.elements() == holders_ * (own + copies), "a placement of {} slots, {} expected",
                 placement.elements(), holders_ * (own + copies));
  }
  struct Move {
    int64_t owner, index;   // the holder that owns the expert, and its place there
    int64_t holder, place;  // the holder of the copy, and its place among copies
  };
  template <class Visit>
  void each(Visit visit) const {
    for (int64_t h = 0; h < holders_; ++h) {
      for (int64_t c = 0; c < copies_; ++c) {
        const int32_t expert = expert_of_slot_[h * (own_ + copies_) + own_ + c];
        if (expert >= 0) visit(Move{expert / own_, expert % own_, h, c});
      }
    }
  }
  int64_t holders() const { return holders_; }
  /// The rank of a holder that has the same slice as this one.
  int64_t rank_of(int64_t holder, int rank) const { return holder * slices_ + rank % slices_; }
  int64_t holder_of(int rank) const { return rank / slices_; }

 private:
  int64_t slices_, holders_, own_, copies_;
  const int32_t* expert_of_slot_;
};

/// w, placement -> copies. From owners, then among holders of a node (relay.h).
void fetch_copies(const KernelCall& call) {
  const TensorView &w = call.in[0], &copies = call.out[0];
  const int64_t packed = call.op->attributes.integer_or("bytes", 0);
  const int64_t bytes = packed > 0 ? packed : w.dim(1) * w.dim(2) * size_of(w.dtype);
  const int rank = call.communicator->rank();
  const Moves moves(call, call.in[1], w.dim(0), copies.dim(0));
  const Holders holders{.slices = call.op->attributes.integer("slices"),
                        .copies = copies.dim(0),
                        .node_of = Places(*call.communicator).node};
  const int64_t here = moves.holder_of(rank);
  std::vector<int64_t> place_E(static_cast<size_t>(w.dim(0) * moves.holders()), -1);  // of experts held here
  moves.each([&](const Moves::Move& m) {
    if (m.holder == here) place_E[static_cast<size_t>(m.owner * w.dim(0) + m.index)] = m.place;
  });
  const std::vector<Handover> all =
      handovers({call.in[1].as<const int32_t>(), static_cast<size_t>(call.in[1].elements())}, holders);
  for (const bool relayed : {false, true}) {
    Parcels parcels;
    bool any = false;  // as all ranks see
    for (const Handover& h : all) {
      if (h.relayed != relayed) continue;
      any = true;
      const PartBytes part = part_of(bytes, h.part, h.parts);
      const auto copy = [&] {
        return copies.as<std::byte>() + place_E[static_cast<size_t>(h.expert)] * bytes + part.offset;
      };
      if (h.from == here) {
        const std::byte* from = relayed ? copy() : w.as<std::byte>() + h.expert % w.dim(0) * bytes + part.offset;
        parcels.send(moves.rank_of(h.to, rank), static_cast<const void*>(from), part.bytes);
      }
      if (h.to == here) parcels.receive(moves.rank_of(h.from, rank), static_cast<void*>(copy()), part.bytes);
    }
    if (any) parcels.exchange(*call.communicator);
  }
}

/// partial, placement -> acc: holders in the order in which they follow the owner, copies of one in theirs. In each
/// round a holder sends to one owner, so that its scratch has room for one holder's copies.
void return_copies(const KernelCall& call) {
  const TensorView &partial = call.in[0], &acc = call.updates[0];
  const int64_t numbers = acc.dim(1) * acc.dim(2), bytes = numbers * size_of(acc.dtype);
  const int rank = call.communicator->rank();
  const Moves moves(call, call.in[1], acc.dim(0), partial.dim(0));
  const int64_t here = moves.holder_of(rank);
  for (int64_t step = 1; step < moves.holders(); ++step) {
    Parcels parcels;
    std::vector<int64_t> arriving;  // places at the owner
    bool any = false;
    moves.each([&](const Moves::Move& m) {
      if ((m.holder - m.owner + moves.holders()) % moves.holders() != step) return;
      any = true;
      if (m.holder == here) {
        parcels.send(moves.rank_of(m.owner, rank),
                     static_cast<const void*>(partial.as<const std::byte>() + m.place * bytes), bytes);
      }
      if (m.owner == here) {
        parcels.receive(moves.rank_of(m.holder, rank),
                        static_cast<void*>(call.scratch + std::ssize(arriving) * bytes), bytes);
        arriving.push_back(m.index);
      }
    });
    if (!any) continue;  // as all ranks see
    parcels.exchange(*call.communicator);
    for (size_t i = 0; i < arriving.size(); ++i) {
      call.row_work->add(acc.dtype, acc.as<std::byte>() + arriving[i] * bytes,
                         call.scratch + static_cast<int64_t>(i) * bytes, numbers, call.stream);
    }
  }
}

int64_t return_scratch(const ir::Listing& listing, const ir::Op& op, const ir::RowCounts& rows) {
  return listing.bytes(op.in[0], rows);
}

Support none_on_a_device(const ir::Op&) {
  return Support::no(
      "moe.replicas needs the counts where the host reads them; \"host\" and \"reference\" have them");
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

const std::vector<Collective>& copies_kernels(bool in_place) {
  static const std::vector<Collective> here{{"place_copies", place_copies, place_scratch},
                                            {"recall_copies", recall_copies},
                                            {"place_rows", place_rows, rows_scratch},
                                            {"fetch_copies", fetch_copies},
                                            {"return_copies", return_copies, return_scratch}};
  static const std::vector<Collective> refused{{"place_copies", place_copies, place_scratch, none_on_a_device},
                                               {"recall_copies", recall_copies, nullptr, none_on_a_device},
                                               {"place_rows", place_rows, rows_scratch, none_on_a_device},
                                               {"fetch_copies", fetch_copies, nullptr, none_on_a_device},
                                               {"return_copies", return_copies, return_scratch, none_on_a_device}};
  return in_place ? here : refused;
}

}  // namespace heddle::comm
