// dispatch_places and combine_places: an exchange of experts' places, in which everybody sends everybody as much.
// Every rank has C places for each of E experts; G ranks = holders × slices, P experts on each
// (ops/experts/capacity.cpp).
#include <vector>

#include "heddle/base/error.h"
#include "heddle/comm/collectives.h"
#include "heddle/comm/communicator.h"
#include "heddle/device/row_work.h"

namespace heddle::comm {

namespace {

using device::KernelCall;
using device::TensorView;

/// The places of one expert and source: where they lie among a rank's own and among those that a holder has.
struct StatePlaces {
  StatePlaces(const KernelCall& call, const TensorView& own)
      : ranks(call.op->attributes.integer("ranks")),
        slices(call.op->attributes.integer("slices")),
        each(call.op->attributes.integer("experts") / (ranks / slices)),
        own_bytes(own.elements() * size_of(own.dtype)),
        bytes(own_bytes / call.op->attributes.integer("experts")) {
    HEDDLE_CHECK(call.communicator->size() == ranks, "'{}' over {} ranks on a communicator of {}", call.op->kind(),
                 ranks, call.communicator->size());
  }
  /// Adds the places of this rank for the experts of `holder`; `base`: where they begin.
  void own(int64_t holder, std::vector<Piece>& pieces, int64_t base = 0) const {
    for (int64_t p = 0; p < each; ++p)
      pieces.push_back({static_cast<int>(holder), base + (holder / slices * each + p) * bytes, bytes});
  }
  /// Adds the places of `source` for the experts of this rank.
  void held(int64_t source, std::vector<Piece>& pieces) const {
    for (int64_t p = 0; p < each; ++p)
      pieces.push_back({static_cast<int>(source), (p * ranks + source) * bytes, bytes});
  }
  int64_t ranks, slices, each, own_bytes, bytes;
};

void dispatch_places(const KernelCall& call) {
  const StatePlaces places(call, call.in[0]);
  std::vector<Piece> sends, receives;
  for (int64_t r = 0; r < places.ranks; ++r) {
    places.own(r, sends);
    places.held(r, receives);
  }
  call.communicator->exchange(call.in[0].data, sends, call.out[0].data, receives);
}

// Scratch has what each slice made of this rank's places, where experts are cut.
void combine_places(const KernelCall& call) {
  const TensorView& out = call.out[0];
  const StatePlaces places(call, out);
  std::vector<Piece> sends, receives;
  for (int64_t r = 0; r < places.ranks; ++r) {
    places.held(r, sends);
    places.own(r, receives, r % places.slices * places.own_bytes);
  }
  const bool cut = places.slices > 1;
  call.communicator->exchange(call.in[0].data, sends, cut ? call.scratch : out.data, receives);
  if (cut) {
    call.row_work->sum_parts(out.dtype, call.scratch, out.elements(), places.slices, out.elements(), out.data,
                             call.stream);
  }
}

int64_t slices_scratch(const ir::Listing& listing, const ir::Op& op, const ir::RowCounts& rows) {
  return op.attributes.integer("slices") > 1 ? listing.bytes(op.in[0], rows) : 0;
}

}  // namespace

const std::vector<Collective>& place_collectives() {
  static const std::vector<Collective> list{{"dispatch_places", dispatch_places, nullptr},
                                            {"combine_places", combine_places, slices_scratch}};
  return list;
}

}  // namespace heddle::comm
