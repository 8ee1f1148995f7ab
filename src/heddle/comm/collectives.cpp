#include "heddle/comm/collectives.h"

#include <cstring>
#include <numeric>
#include <vector>

#include "heddle/base/error.h"
#include "heddle/comm/communicator.h"

namespace heddle::comm {

namespace {

using device::KernelCall;
using device::TensorView;

// n[2, G, E/G]: n[0, r, e] rows I send to expert e of rank r, n[1, s, e] rows I receive from rank s for my expert e.
struct Counts {
  explicit Counts(const TensorView& n) : data(n.as<const int32_t>()), ranks(n.dim(1)), experts(n.dim(2)) {}
  int64_t sent(int64_t rank, int64_t expert) const { return data[rank * experts + expert]; }
  int64_t received(int64_t rank, int64_t expert) const { return data[(ranks + rank) * experts + expert]; }
  const int32_t* data;
  int64_t ranks, experts;
};

void share_counts(const KernelCall& call) {
  const TensorView& offsets = call.in[0];
  const TensorView& counts = call.out[0];
  const int64_t ranks = counts.dim(1), experts = counts.dim(2);
  int32_t* sent = counts.as<int32_t>();
  for (int64_t e = 0; e < ranks * experts; ++e) {
    sent[e] = offsets.as<const int32_t>()[e + 1] - offsets.as<const int32_t>()[e];
  }
  const int64_t bytes = experts * static_cast<int64_t>(sizeof(int32_t));
  std::vector<Piece> pieces;
  for (int64_t r = 0; r < ranks; ++r) pieces.push_back({static_cast<int>(r), r * bytes, bytes});
  call.communicator->exchange(sent, pieces, sent + ranks * experts, pieces);
}

void counts_to_host(const KernelCall& call) {
  const TensorView& n = call.out[0];
  std::memcpy(n.data, call.in[0].data, static_cast<size_t>(n.elements()) * sizeof(int32_t));
  const Counts counts(n);
  int32_t* offsets = call.out[1].as<int32_t>();
  offsets[0] = 0;
  for (int64_t e = 0; e < counts.experts; ++e) {
    offsets[e + 1] = offsets[e];
    for (int64_t s = 0; s < counts.ranks; ++s) offsets[e + 1] += static_cast<int32_t>(counts.received(s, e));
  }
}

void exchange(const KernelCall& call) {
  const Counts counts(call.in[1]);
  const int64_t row_bytes = call.in[0].columns() * size_of(call.in[0].dtype);
  // The side sorted by (rank, expert), as the tokens' owner holds it, and the side sorted by (expert, rank).
  std::vector<Piece> by_rank, by_expert;
  int64_t at = 0;
  for (int64_t r = 0; r < counts.ranks; ++r) {
    for (int64_t e = 0; e < counts.experts; ++e) {
      const int64_t bytes = counts.sent(r, e) * row_bytes;
      by_rank.push_back({static_cast<int>(r), at, bytes});
      at += bytes;
    }
  }
  at = 0;
  for (int64_t e = 0; e < counts.experts; ++e) {
    for (int64_t s = 0; s < counts.ranks; ++s) {
      const int64_t bytes = counts.received(s, e) * row_bytes;
      by_expert.push_back({static_cast<int>(s), at, bytes});
      at += bytes;
    }
  }
  const bool back = call.op->attributes.integer("back") != 0;
  call.communicator->exchange(call.in[0].data, back ? by_expert : by_rank, call.out[0].data,
                              back ? by_rank : by_expert);
}

int neighbour(const KernelCall& call) {
  return call.communicator->rank() + static_cast<int>(call.op->attributes.integer("step"));
}

void send(const KernelCall& call) {
  const TensorView& x = call.in[0];
  call.communicator->send(x.data, x.elements() * size_of(x.dtype), neighbour(call));
}

void receive(const KernelCall& call) {
  const TensorView& x = call.out[0];
  call.communicator->receive(x.data, x.elements() * size_of(x.dtype), neighbour(call));
}

}  // namespace

const Collective* find_collective(std::string_view kind) {
  static const std::vector<Collective> own{{"share_counts", share_counts},
                                           {"counts_to_host", counts_to_host},
                                           {"exchange", exchange},
                                           {"send", send},
                                           {"receive", receive}};
  for (const auto* list : {&own, &row_collectives()}) {
    for (const Collective& collective : *list) {
      if (collective.kind == kind) return &collective;
    }
  }
  return nullptr;
}

int64_t received_rows(const TensorView& n) {
  const Counts counts(n);
  int64_t rows = 0;
  for (int64_t s = 0; s < counts.ranks; ++s) {
    for (int64_t e = 0; e < counts.experts; ++e) rows += counts.received(s, e);
  }
  return rows;
}

}  // namespace heddle::comm
