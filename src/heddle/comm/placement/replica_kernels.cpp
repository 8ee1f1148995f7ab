// fetch_copies and return_copies: weights of copies to their holders, gradients to their owners.
#include "heddle/comm/placement/replica_kernels.h"

#include "heddle/comm/exchange/piece_list.h"
#include "heddle/comm/exchange/places.h"
#include "heddle/comm/placement/relay.h"
#include "heddle/device/host_copies.h"
#include "heddle/device/routing_plan.h"

namespace heddle::comm {

namespace {

using device::HostCopies;
using device::KernelCall;
using device::TensorView;

/// The moves of a weight's replicas in a placement: which go from where to where. By homes, as owners are.
class Moves {
 public:
  /// `placement`: what ends with the expert of each slot.
  Moves(const KernelCall& call, const TensorView& placement, int64_t own, int64_t replicas)
      : slices_(call.op->attributes.integer("slices")),
        holders_(call.communicator->size() / slices_),
        own_(own),
        replicas_(replicas) {
    const int64_t slots = holders_ * (own + replicas);
    HEDDLE_CHECK(placement.elements() >= slots, "a placement of {} slots, {} expected", placement.elements(),
                 slots);
    const TensorView here = HostCopies::on_host(call, placement);
    const int32_t* experts = device::RoutingPlan::experts_of_slots(here, slots);
    std::vector<int32_t> position_of_E(static_cast<size_t>(holders_ * own), -1);  // its owner's slot says it
    for (int64_t position = 0; position < holders_ * own; ++position) {
      const int32_t expert = experts[position / own * (own + replicas) + position % own];
      position_of_E.at(static_cast<size_t>(expert)) = static_cast<int32_t>(position);
    }
    for (int64_t s = 0; s < slots; ++s)
      position_of_slot_.push_back(experts[s] < 0 ? -1 : position_of_E.at(static_cast<size_t>(experts[s])));
  }
  struct Move {
    int64_t owner, index;   // the holder that owns the expert, and its place there
    int64_t holder, place;  // the holder of the copy, and its place among copies
  };
  template <class Visit>
  void each(Visit visit) const {
    for (int64_t h = 0; h < holders_; ++h) {
      for (int64_t c = 0; c < replicas_; ++c) {
        const int32_t position = position_of_slot_[static_cast<size_t>(h * (own_ + replicas_) + own_ + c)];
        if (position >= 0) visit(Move{position / own_, position % own_, h, c});
      }
    }
  }
  int64_t holders() const { return holders_; }
  std::span<const int32_t> home_of_slot() const { return position_of_slot_; }
  /// The rank of a holder that has the same slice as this one.
  int64_t rank_of(int64_t holder, int rank) const { return holder * slices_ + rank % slices_; }
  int64_t holder_of(int rank) const { return rank / slices_; }

 private:
  int64_t slices_, holders_, own_, replicas_;
  std::vector<int32_t> position_of_slot_;
};

/// w, placement -> copies. From owners, then among holders of a node (relay.h).
void fetch_copies(const KernelCall& call) {
  const TensorView &w = call.in[0], &replicas = call.out[0];
  const int64_t packed = call.op->attributes.integer_or("bytes", 0);
  const int64_t bytes = packed > 0 ? packed : w.elements() / w.dim(0) * size_of(w.dtype);
  const int rank = call.communicator->rank();
  const Moves moves(call, call.in[1], w.dim(0), replicas.dim(0));
  const Holders holders{.slices = call.op->attributes.integer("slices"),
                        .replicas = replicas.dim(0),
                        .node_of = Places(*call.communicator).node};
  const int64_t here = moves.holder_of(rank);
  std::vector<int64_t> place_E(static_cast<size_t>(w.dim(0) * moves.holders()), -1);  // of experts held here
  moves.each([&](const Moves::Move& m) {
    if (m.holder == here) place_E[static_cast<size_t>(m.owner * w.dim(0) + m.index)] = m.place;
  });
  const std::vector<Handover> all = handovers(moves.home_of_slot(), holders);
  for (const bool relayed : {false, true}) {
    PieceList piece_list;
    bool any = false;  // as all ranks see
    for (const Handover& h : all) {
      if (h.relayed != relayed) continue;
      any = true;
      const PartBytes part = part_of(bytes, h.part, h.parts);
      const auto replica = [&] {
        return replicas.as<std::byte>() + place_E[static_cast<size_t>(h.expert)] * bytes + part.offset;
      };
      if (h.from == here) {
        const std::byte* from = relayed ? replica() : w.as<std::byte>() + h.expert % w.dim(0) * bytes + part.offset;
        piece_list.send(moves.rank_of(h.to, rank), static_cast<const void*>(from), part.bytes);
      }
      if (h.to == here) piece_list.receive(moves.rank_of(h.from, rank), static_cast<void*>(replica()), part.bytes);
    }
    if (any) piece_list.exchange(*call.communicator);
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
    PieceList piece_list;
    std::vector<int64_t> arriving;  // places at the owner
    bool any = false;
    moves.each([&](const Moves::Move& m) {
      if ((m.holder - m.owner + moves.holders()) % moves.holders() != step) return;
      any = true;
      if (m.holder == here) {
        piece_list.send(moves.rank_of(m.owner, rank),
                        static_cast<const void*>(partial.as<const std::byte>() + m.place * bytes), bytes);
      }
      if (m.owner == here) {
        piece_list.receive(moves.rank_of(m.holder, rank),
                           static_cast<void*>(call.scratch + std::ssize(arriving) * bytes), bytes);
        arriving.push_back(m.index);
      }
    });
    if (!any) continue;  // as all ranks see
    piece_list.exchange(*call.communicator);
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

const std::vector<Collective>& replica_kernels() {
  static const std::vector<Collective> list{{"fetch_copies", fetch_copies},
                                            {"return_copies", return_copies, return_scratch}};
  return list;
}

}  // namespace heddle::comm
