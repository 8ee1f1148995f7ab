// fetch_copies and return_copies: weights of copies to their holders, gradients to their owners.
#include "heddle/comm/placement/copies.h"

#include "heddle/comm/exchange/parcels.h"
#include "heddle/comm/exchange/places.h"
#include "heddle/comm/placement/homes.h"
#include "heddle/comm/placement/relay.h"
#include "heddle/device/host_copies.h"
#include "heddle/device/routing_plan.h"
#include "heddle/device/row_work.h"

namespace heddle::comm {

namespace {

using device::HostCopies;
using device::KernelCall;
using device::TensorView;

/// What a placement says of the copies of a weight: which go from where to where. By homes, as owners are.
class Moves {
 public:
  /// `placement`: what ends with the expert of each slot.
  Moves(const KernelCall& call, const TensorView& placement, int64_t own, int64_t copies)
      : slices_(call.op->attributes.integer("slices")),
        holders_(call.communicator->size() / slices_),
        own_(own),
        copies_(copies) {
    const int64_t slots = holders_ * (own + copies);
    HEDDLE_CHECK(placement.elements() >= slots, "a placement of {} slots, {} expected", placement.elements(),
                 slots);
    const TensorView here = HostCopies::on_host(call, placement);
    const int32_t* experts = device::RoutingPlan::experts_of_slots(here, slots);
    home_of_slot_.assign(experts, experts + slots);
    Homes::now(call).name_homes(home_of_slot_);
  }
  struct Move {
    int64_t owner, index;   // the holder that owns the expert, and its place there
    int64_t holder, place;  // the holder of the copy, and its place among copies
  };
  template <class Visit>
  void each(Visit visit) const {
    for (int64_t h = 0; h < holders_; ++h) {
      for (int64_t c = 0; c < copies_; ++c) {
        const int32_t home = home_of_slot_[static_cast<size_t>(h * (own_ + copies_) + own_ + c)];
        if (home >= 0) visit(Move{home / own_, home % own_, h, c});
      }
    }
  }
  int64_t holders() const { return holders_; }
  std::span<const int32_t> home_of_slot() const { return home_of_slot_; }
  /// The rank of a holder that has the same slice as this one.
  int64_t rank_of(int64_t holder, int rank) const { return holder * slices_ + rank % slices_; }
  int64_t holder_of(int rank) const { return rank / slices_; }

 private:
  int64_t slices_, holders_, own_, copies_;
  std::vector<int32_t> home_of_slot_;
};

/// w, placement -> copies. From owners, then among holders of a node (relay.h).
void fetch_copies(const KernelCall& call) {
  const TensorView &w = call.in[0], &copies = call.out[0];
  const int64_t packed = call.op->attributes.integer_or("bytes", 0);
  const int64_t bytes = packed > 0 ? packed : w.elements() / w.dim(0) * size_of(w.dtype);
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
  const std::vector<Handover> all = handovers(moves.home_of_slot(), holders);
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
  const int64_t numbers = acc.elements() / acc.dim(0), bytes = numbers * size_of(acc.dtype);
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

}  // namespace

const std::vector<Collective>& copies_kernels() {
  static const std::vector<Collective> list{{"fetch_copies", fetch_copies},
                                            {"return_copies", return_copies, return_scratch}};
  return list;
}

}  // namespace heddle::comm
