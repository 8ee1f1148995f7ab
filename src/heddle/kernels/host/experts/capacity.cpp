// Choices of a microbatch that keep a place with their expert. T tokens, k experts a token, R = T·k rows sorted by
// (expert, token), E experts of C places. See ops/experts/capacity.cpp.
//
// Gates are laid out by row, as unsigned numbers in the order of floats. An expert that has more rows than places
// halves the range of those numbers until as many of its rows lie above as it has places, counting in vectors. Then
// its rows take their places in order, and slots read theirs. Nothing depends on the number of threads.
#include "heddle/kernels/host/simd_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "heddle/kernels/host/experts/capacity.cpp"
#include <atomic>

#include "heddle/kernels/host/host.h"
#include "heddle/kernels/host/row_pieces.h"
#include "hwy/foreach_target.h"
// The order matters: these are compiled for each target.
#include "heddle/kernels/host/lanes-inl.h"
#include "heddle/kernels/host/top-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heddle::kernels::host::HWY_NAMESPACE {
namespace {
using device::KernelCall;

HWY_INLINE int64_t count_from(uint32_t least, const uint32_t* orders, int64_t n) {
  const Words words;
  const auto limit = hn::Set(words, least);
  auto sums = hn::Zero(words);
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const auto order = hn::LoadU(words, orders + i);
    sums = hn::Sub(sums, hn::VecFromMask(words, hn::Eq(hn::Max(order, limit), order)));
  }
  int64_t count = hn::GetLane(hn::SumOfLanes(words, sums));
  for (; i < n; ++i) count += orders[i] >= least ? 1 : 0;
  return count;
}

/// Rows that keep a place: all above `order`, and the first `ties` that are equal to it.
struct Bound {
  uint32_t order = 0;
  int64_t ties = 0;
};
HWY_INLINE Bound bound_of(const uint32_t* orders, int64_t n, int64_t C) {
  if (n <= C) return {};
  uint64_t low = 0, high = uint64_t{1} << 32;  // at least C from low on, fewer from high on
  while (high - low > 1) {
    const uint64_t middle = (low + high) / 2;
    const int64_t count = count_from(static_cast<uint32_t>(middle), orders, n);
    if (count == C) return {static_cast<uint32_t>(middle - 1), 0};
    (count > C ? low : high) = middle;
  }
  const int64_t above = high >> 32 != 0 ? 0 : count_from(static_cast<uint32_t>(high), orders, n);
  return {static_cast<uint32_t>(low), C - above};
}
}  // namespace

/// A piece of slots: fills scratch by row.
void OrdersOfGates(const KernelCall& call, int64_t begin, int64_t end) {
  const auto* g_Tk = call.in[0].as<const float>();
  const auto* row_of_Tk = call.in[1].as<const int32_t>();
  auto* order_R = reinterpret_cast<uint32_t*>(call.scratch);
  HWY_ALIGN uint32_t orders[kLanes];
  const Words words;
  int64_t i = begin;
  for (; i + kLanes <= end; i += kLanes) {
    hn::Store(order_of(load(g_Tk + i, Whole{})), words, orders);
    for (int64_t lane = 0; lane < kLanes; ++lane) order_R[row_of_Tk[i + lane]] = orders[lane];
  }
  if (i == end) return;
  hn::Store(order_of(load(g_Tk + i, Part{end - i})), words, orders);
  for (int64_t lane = 0; i + lane < end; ++lane) order_R[row_of_Tk[i + lane]] = orders[lane];
}

/// A piece of experts: scratch becomes the place of each row, or −1.
void PlacesOfRows(const KernelCall& call, int64_t begin, int64_t end) {
  const auto *token_of_R = call.in[2].as<const int32_t>(), *offsets = call.in[3].as<const int32_t>();
  const int64_t C = call.op->attributes.integer("places");
  auto* token_of_EC = call.out[2].as<int32_t>();
  for (int64_t e = begin; e < end; ++e) {
    const int64_t n = offsets[e + 1] - offsets[e];
    auto* order_n = reinterpret_cast<uint32_t*>(call.scratch) + offsets[e];
    const int32_t* token_n = token_of_R + offsets[e];
    int32_t* token_C = token_of_EC + e * C;
    const Bound bound = bound_of(order_n, n, C);
    int64_t place = 0, ties = bound.ties, row = 0;
    // No branch depends on what is kept: a token that is not is overwritten by the next.
    for (; row < n && place < C; ++row) {
      const bool tie = order_n[row] == bound.order;
      const bool keeps = order_n[row] > bound.order || (tie && ties > 0);
      ties -= tie ? 1 : 0;
      token_C[place] = token_n[row];
      order_n[row] = keeps ? static_cast<uint32_t>(e * C + place) : ~uint32_t{0};
      place += keeps ? 1 : 0;
    }
    std::fill(order_n + row, order_n + n, ~uint32_t{0});
    std::fill(token_C + place, token_C + C, -1);
  }
}

/// A piece of slots.
void PlacesOfSlots(const KernelCall& call, int64_t begin, int64_t end) {
  const auto* g_Tk = call.in[0].as<const float>();
  const auto* row_of_Tk = call.in[1].as<const int32_t>();
  const auto* place_R = reinterpret_cast<const int32_t*>(call.scratch);
  auto* kept_Tk = call.out[0].as<float>();
  auto* place_of_Tk = call.out[1].as<int32_t>();
  for (int64_t i = begin; i < end; ++i) {
    const int32_t place = place_R[row_of_Tk[i]];
    place_of_Tk[i] = place;
    kept_Tk[i] = place < 0 ? 0 : g_Tk[i];
  }
}

void GradientsOfKept(const KernelCall& call, int64_t begin, int64_t end) {
  const auto* dkept_Tk = call.in[0].as<const float>();
  const auto* place_of_Tk = call.in[1].as<const int32_t>();
  auto* dg_Tk = call.out[0].as<float>();
  for (int64_t i = begin; i < end; ++i) dg_Tk[i] = place_of_Tk[i] < 0 ? 0 : dkept_Tk[i];
}

int64_t CountDropped(const int32_t* place_of_Tk, int64_t count) {
  uint32_t dropped = 0;  // at most as many as there are rows, which i32 counts
  for (int64_t i = 0; i < count; ++i) dropped += static_cast<uint32_t>(place_of_Tk[i]) >> 31;
  return dropped;
}

}  // namespace heddle::kernels::host::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heddle::kernels::host {
namespace {
using device::KernelCall;
HWY_EXPORT(OrdersOfGates);
HWY_EXPORT(PlacesOfRows);
HWY_EXPORT(PlacesOfSlots);
HWY_EXPORT(GradientsOfKept);
HWY_EXPORT(CountDropped);

void pieces(const KernelCall& call, int64_t count, int64_t bytes_each, RowKernel piece) {
  over_rows(call, count, bytes_each, piece);
}

void apply_capacity(const KernelCall& call) {
  const int64_t R = call.in[0].elements(), E = call.in[3].elements() - 1, C = call.out[2].elements() / E;
  pieces(call, R, 16, HWY_DYNAMIC_DISPATCH(OrdersOfGates));
  pieces(call, E, (R * 64 + E * C * 4) / E, HWY_DYNAMIC_DISPATCH(PlacesOfRows));  // an expert's rows are read often
  pieces(call, R, 20, HWY_DYNAMIC_DISPATCH(PlacesOfSlots));
  const int64_t sources = call.out[4].dim(1), P = call.out[4].dim(2);
  for (int64_t p = 0; p <= P; ++p) call.out[3].as<int32_t>()[p] = static_cast<int32_t>(p * sources * C);
  std::fill_n(call.out[4].as<int32_t>(), call.out[4].elements(), static_cast<int32_t>(C));
}
int64_t row_scratch(const ir::Listing& listing, const ir::Op& op, const ir::RowCounts& rows) {
  return listing.elements(op.in[0], rows) * 4;
}

void apply_capacity_dgrad(const KernelCall& call) {
  pieces(call, call.in[0].elements(), 12, HWY_DYNAMIC_DISPATCH(GradientsOfKept));
}

void count_dropped(const KernelCall& call) {
  std::atomic<int64_t> dropped = 0;  // whole numbers: the same in any order
  over_rows(call.in[0].elements(), 4, [&](int64_t begin, int64_t end) {
    dropped += HWY_DYNAMIC_DISPATCH(CountDropped)(call.in[0].as<const int32_t>() + begin, end - begin);
  });
  auto* sum = call.updates[0].as<double>();
  *sum = static_cast<double>(dropped) + (call.overwrite ? 0 : *sum);
}

}  // namespace

std::vector<KernelEntry> capacity_kernels() {
  return {{"apply_capacity", "host", "highway", takes<"aiii">, row_scratch, apply_capacity},
          {"apply_capacity_dgrad", "host", "highway", takes<"ai">, nullptr, apply_capacity_dgrad},
          {"count_dropped", "host", "highway", takes<"i", "d">, nullptr, count_dropped}};
}

}  // namespace heddle::kernels::host
#endif  // HWY_ONCE
