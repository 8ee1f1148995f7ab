// move_experts: the state of experts that change their homes, from holder to holder.
#include <algorithm>

#include "heddle/base/error.h"
#include "heddle/comm/exchange/piece_list.h"
#include "heddle/comm/placement/expert_placement.h"
#include "heddle/comm/placement/replica_kernels.h"
#include "heddle/device/host_copies.h"

namespace heddle::comm {

namespace {

using device::KernelCall;
using device::TensorView;

/// The bytes of a tensor that belong to the expert at a place: of a run, those that lie in it.
class PlaceBytes {
 public:
  PlaceBytes(const ir::Attributes& a, bool is_run, int64_t elements, Dtype dtype, int64_t run)
      : packed_(a.integer_or("packed", 0)),
        numbers_(a.integer("numbers")),
        size_(size_of(dtype)),
        first_(is_run ? run * elements : 0),
        elements_(elements) {}
  struct Part {
    int64_t offset = 0, bytes = 0;
  };
  Part at(int64_t place) const {
    if (packed_ > 0) return {place * packed_, packed_};
    const int64_t begin = std::max(place * numbers_, first_);
    const int64_t end = std::min((place + 1) * numbers_, first_ + elements_);
    return {(begin - first_) * size_, std::max<int64_t>(0, end - begin) * size_};
  }

 private:
  int64_t packed_, numbers_, size_, first_, elements_;
};

/// moves -> state. All ranks go through places and tensors in one order. In each round a rank sends one expert at
/// most, to one rank, and takes one. So its scratch has room for one expert of one tensor.
void move_experts(const KernelCall& call) {
  const TensorView moves = device::HostCopies::on_host(call, call.in[0]);
  const auto* first = moves.as<const int32_t>();
  const int64_t count = moves.dim(1);
  if (std::equal(first, first + count, first + count)) return;
  const ir::Attributes& a = call.op->attributes;
  const ExpertPlacement before({first, first + count}), after({first + count, first + 2 * count});
  const int64_t slices = a.integer("slices"), holders = a.integer("ranks") / slices, experts = a.integer("experts");
  const int64_t places = experts / holders;
  const int rank = call.communicator->rank();
  HEDDLE_CHECK(call.communicator->size() == a.integer("ranks") && count == experts,
               "{} experts move among {} ranks", count, call.communicator->size());
  const int64_t here = rank / slices, replica = call.place == nullptr ? 0 : call.place->at(ir::Axis::edp);
  const bool by_slice = a.integer_or("by_slice", 0) != 0;
  const int64_t run = by_slice ? replica * slices + rank % slices : replica;
  const auto rank_of = [&](int64_t position) { return position / places * slices + rank % slices; };
  for (const TensorView& state : call.updates) {
    const PlaceBytes bytes(a, state.rank == 1, state.elements(), state.dtype, run);
    for (int64_t place = 0; place < places; ++place) {
      bool any = false;  // as all ranks see
      for (int64_t h = 0; h < holders; ++h) {
        const int64_t position = h * places + place, goes_to = after.of(before.expert_at(position));
        HEDDLE_CHECK(goes_to % places == place, "an expert goes from place {} to {}", place, goes_to % places);
        any |= goes_to != position;
      }
      const PlaceBytes::Part part = bytes.at(place);
      // The ranks of a communicator have the same part of their experts, where these are not cut by slice.
      if (!any || (part.bytes == 0 && !by_slice)) continue;
      const int64_t position = here * places + place;
      const int64_t goes_to = after.of(before.expert_at(position)),
                    comes_from = before.of(after.expert_at(position));
      auto* const at = state.as<std::byte>() + part.offset;
      const bool leaves = goes_to != position && part.bytes > 0;
      PieceList piece_list;
      if (leaves) {
        piece_list.send(rank_of(goes_to), static_cast<const void*>(at), part.bytes);
        piece_list.receive(rank_of(comes_from), static_cast<void*>(call.scratch), part.bytes);
      }
      piece_list.exchange(*call.communicator);
      if (leaves) call.row_work->copy(at, call.scratch, part.bytes, call.stream);
    }
  }
}

int64_t move_scratch(const ir::Listing& listing, const ir::Op& op, const ir::RowCounts& rows) {
  const ir::Attributes& a = op.attributes;
  int64_t most = a.integer_or("packed", 0);
  for (const ir::ValueId id : op.updates) {
    const ir::Value& state = listing.value(id);
    if (state.packed_bytes > 0) continue;
    most = std::max(most, std::min(listing.bytes(id, rows), a.integer("numbers") * size_of(state.dtype)));
  }
  return most;
}

}  // namespace

const std::vector<Collective>& moving_kernels() {
  static const std::vector<Collective> list{{"move_experts", move_experts, move_scratch}};
  return list;
}

}  // namespace heddle::comm
