// Lists of the tokens and rows that go to each rank or node: one walk over the tokens in order, for all
// destinations.
#include <algorithm>
#include <cstring>

#include "heddle/comm/host/holders.h"
#include "heddle/comm/host/row_work.h"

namespace heddle::comm::host {

using device::Alone;
using device::ListRows;
using device::ListTokens;
using device::TokenRoutes;

namespace {

/// Counts at [1 … count] become firsts.
void running_sums(int32_t* counts, int64_t count) {
  counts[0] = 0;
  for (int64_t i = 1; i <= count; ++i) counts[i] += counts[i - 1];
}

/// The destinations of one token after the other, each with its rows there.
class Destinations {
 public:
  Destinations(const TokenRoutes& routes, bool by_node)
      : routes_(routes),
        holders_(routes),
        by_node_(by_node),
        rows_D_(static_cast<size_t>(routes.D), 0),
        rows_N_(static_cast<size_t>(routes.G), 0),
        found_(static_cast<size_t>(routes.D) + 1) {}  // one behind, where what was found before is put again

  /// visit(d, rows of token q at d or, by node, on d's node).
  template <class Visit>
  void visit(int64_t q, Visit visit) {
    const int32_t* experts = routes_.experts_Qk + q * routes_.k;
    size_t found = 0;
    for (int64_t j = 0; j < routes_.k; ++j) {
      if (!holders_.has(experts[j])) continue;
      const Holders::Slice* slice = holders_.slices() + experts[j] * routes_.slices;
      for (const Holders::Slice* end = slice + routes_.slices; slice < end; ++slice) {
        if (by_node_) ++rows_N_[slice->node];
        if (slice->destination < 0) continue;
        found_[found] = {slice->destination, slice->node};
        found += rows_D_[slice->destination]++ == 0 ? 1 : 0;
      }
    }
    for (size_t i = 0; i < found; ++i) {
      int32_t& rows = rows_D_[found_[i].d];
      visit(found_[i].d, by_node_ ? rows_N_[found_[i].node] : rows);
      rows = 0;
    }
    if (by_node_) std::fill(rows_N_.begin(), rows_N_.end(), 0);
  }

 private:
  struct Found {
    int32_t d, node;
  };
  const TokenRoutes& routes_;
  Holders holders_;
  bool by_node_;
  std::vector<int32_t> rows_D_, rows_N_;
  std::vector<Found> found_;
};

}  // namespace

void list_tokens(const ListTokens& args, void*) {
  const TokenRoutes& r = args.routes;
  Destinations destinations(r, !r.by_node && args.alone == Alone::on_node);
  std::vector<int32_t> many(static_cast<size_t>(r.D)), alone(many);
  if (args.place_DQ != nullptr) std::fill_n(args.place_DQ, r.D * r.Q, -1);
  const auto put = [&](int32_t d, int64_t q, int32_t place) {
    if (args.place_DQ != nullptr) args.place_DQ[d * r.Q + q] = place;
  };
  for (int64_t i = 0; i < r.I; ++i) {
    std::fill(many.begin(), many.end(), 0);
    std::fill(alone.begin(), alone.end(), 0);
    for (int64_t q = r.first_I[i]; q < r.first_I[i + 1]; ++q) {
      if (args.all) {
        for (int32_t d = 0; d < r.D; ++d) put(d, q, many[d]++);
        continue;
      }
      destinations.visit(q, [&](int32_t d, int32_t rows) {
        if (args.alone != Alone::never && rows == 1) {
          put(d, q, -2 - alone[d]++);  // behind those of many rows, when these are counted
        } else {
          put(d, q, many[d]++);
        }
      });
    }
    for (int64_t d = 0; d < r.D; ++d) {
      args.many_DI[d * r.I + i + 1] = many[d];
      args.alone_DI[d * r.I + i + 1] = alone[d];
      if (args.place_DQ == nullptr || alone[d] == 0) continue;
      for (int64_t q = r.first_I[i]; q < r.first_I[i + 1]; ++q) {
        int32_t& place = args.place_DQ[d * r.Q + q];
        if (place < -1) place = many[d] - 2 - place;
      }
    }
  }
  if (args.place_DQ == nullptr) return;
  running_sums(args.many_DI, r.D * r.I);
  running_sums(args.alone_DI, r.D * r.I);
}

void tokens_of_places(const device::TokensOfPlaces& args, void*) {
  for (int64_t d = 0; d < args.D; ++d) {
    for (int64_t i = 0; i < args.I; ++i) {
      const int64_t b = d * args.I + i;
      int32_t* token_U = args.token_U + args.many_DI[b] + args.alone_DI[b];
      const bool other = args.other_place_Q != nullptr;
      const int32_t first = other ? args.other_many_I[i] + args.other_alone_I[i] : 0;
      for (int32_t q = args.first_I[i]; q < args.first_I[i + 1]; ++q) {
        const int32_t found = args.place_DQ[d * args.Q + q];
        if (found >= 0) token_U[found] = other ? first + args.other_place_Q[q] : q;
      }
    }
  }
}

namespace {

/// visit(its list of an expert, slot, slot·slices + slice, its list of tokens) of every row, by token, slot and
/// slice.
template <class Visit>
void each_row(const TokenRoutes& r, const Holders& holders, Visit visit) {
  for (int64_t i = 0; i < r.I; ++i) {
    for (int64_t slot = r.first_I[i] * r.k; slot < r.first_I[i + 1] * r.k; ++slot) {
      const int32_t expert = r.experts_Qk[slot];
      if (!holders.has(expert)) continue;
      const Holders::Slice* slices = holders.slices() + expert * r.slices;
      for (int64_t s = 0; s < r.slices; ++s) {
        const int64_t d = slices[s].destination;
        if (d >= 0) visit((d * r.I + i) * r.P + holders.index(expert), slot, slot * r.slices + s, d * r.I + i);
      }
    }
  }
}

/// Rows of a slot's token at its rank that stand before it: those of lower experts.
int32_t earlier_rows(const TokenRoutes& r, const Holders& holders, int64_t slot) {
  const int32_t expert = r.experts_Qk[slot], first = expert - holders.index(expert);
  const int32_t* experts = r.experts_Qk + slot / r.k * r.k;
  int32_t earlier = 0;
  for (int64_t j = 0; j < r.k; ++j) earlier += experts[j] >= first && experts[j] < expert ? 1 : 0;
  return earlier;
}

}  // namespace

void list_rows(const ListRows& args, void*) {
  const TokenRoutes& r = args.routes;
  const Holders holders(r);
  const int64_t lists = r.D * r.I * r.P;
  std::fill_n(args.offsets + 1, lists, 0);
  each_row(r, holders, [&](int64_t list, int64_t, int64_t, int64_t) { ++args.offsets[list + 1]; });
  if (args.slot_of_R == nullptr) return;
  running_sums(args.offsets, lists);
  std::vector<int32_t> next(args.offsets, args.offsets + lists);
  const int64_t words = args.gate_words + (args.place_DQ != nullptr ? 1 : 0);
  each_row(r, holders, [&](int64_t list, int64_t slot, int64_t at, int64_t b) {
    const int32_t row = next[list]++;
    args.slot_of_R[row] = static_cast<int32_t>(slot);
    args.row_of_Qks[at] = row;
    if (args.header_R == nullptr) return;
    int32_t* header = args.header_R + row * words;
    const int64_t gate_bytes = args.gate_words * 4;
    std::memcpy(header, static_cast<const std::byte*>(args.g_Qk) + slot * gate_bytes,
                static_cast<size_t>(gate_bytes));
    if (args.place_DQ == nullptr) return;
    const int32_t place = args.place_DQ[b / r.I * r.Q + slot / r.k];
    const auto code = static_cast<int32_t>(place * args.L + earlier_rows(r, holders, slot));
    header[args.gate_words] = place >= args.many_DI[b + 1] - args.many_DI[b] ? ~code : code;
  });
}

}  // namespace heddle::comm::host
