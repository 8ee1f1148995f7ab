// The cuda backend's part of collectives: device/row_work.h.
#include "heddle/device/row_work.h"

#include <algorithm>

#include "heddle/kernels/cuda/backend.h"
#include "heddle/kernels/cuda/experts/combine_kernels.h"
#include "heddle/kernels/cuda/experts/exchange_kernels.h"
#include "heddle/kernels/cuda/experts/host_work.h"
#include "heddle/kernels/cuda/experts/routing_kernels.h"
#include "heddle/kernels/cuda/experts/row_kernels.h"
#include "heddle/kernels/cuda/experts/slot_kernels.h"
#include "heddle/kernels/cuda/map_kernels.h"

namespace heddle::kernels::cuda {

namespace {

LaunchShape flat(int64_t count) { return {.blocks_x = std::min<int64_t>(blocks_for(count, 256), 1 << 16)}; }

void sum(Dtype dtype, const std::byte* parts, int64_t stride, int64_t ranks, int64_t count, void* out,
         void* stream) {
  const RankSumArgs args{parts, out, stride, ranks, count};
  switch (dtype) {
    case Dtype::f64: return launch(rank_sum<double, double>, flat(count), args, stream);
    case Dtype::f32: return launch(rank_sum<float, float>, flat(count), args, stream);
    case Dtype::bf16: return launch(rank_sum<Bf16, float>, flat(count), args, stream);
    default: internal_error("a sum of {}", name_of(dtype));
  }
}

void add(Dtype dtype, void* to, const void* from, int64_t count, void* stream) {
  const AccumulateArgs args{from, to, count, false};
  const LaunchShape shape{.blocks_x = blocks_for(count, 256 * 8)};
  if (dtype == Dtype::f64) return launch(accumulate<double, double>, shape, args, stream);
  HEDDLE_CHECK(dtype == Dtype::f32, "a sum of {}", name_of(dtype));
  launch(accumulate<float, float>, shape, args, stream);
}

void cut(std::byte* whole, std::byte* parts, int64_t rows, int64_t width, int64_t ranks, bool join, void* stream) {
  const bool wide =
      (reinterpret_cast<uintptr_t>(whole) | reinterpret_cast<uintptr_t>(parts) | static_cast<uint64_t>(width)) %
          16 ==
      0;
  const int64_t unit = wide ? 16 : 2;
  launch(wide ? cut_columns<Quad> : cut_columns<uint16_t>, flat(rows * ranks * width / unit),
         {whole, parts, rows, width / unit, ranks, join}, stream);
}

void gather(Dtype dtype, const void* from, int64_t H, const int32_t* index_R, int64_t each, int64_t R, void* to,
            void* stream) {
  constexpr int64_t kAnyRow = int64_t{1} << 40;  // indices are the exchange's own
  by_type(dtype, [&]<class X>(X) {
    launch(gather_rows<X>, flat(R * 32), {from, index_R, to, R, H, kAnyRow, each}, stream);
  });
}

void running(int32_t* counts, int64_t count, void* stream) {
  launch(running_sums, {.threads = 32}, {counts, count}, stream);
}

void list(const device::ListTokens& args, void* stream) {
  const int64_t lists = args.routes.D * args.routes.I;
  launch(list_tokens, {.blocks_x = args.routes.D, .blocks_y = args.routes.I, .threads = kListThreads}, args,
         stream);
  if (args.place_DQ == nullptr) return;
  running(args.many_DI, lists, stream);
  running(args.alone_DI, lists, stream);
}

void tokens(const device::TokensOfPlaces& args, void* stream) {
  launch(tokens_of_places, flat(args.D * args.Q), args, stream);
}

void list_of_rows(const device::ListRows& args, void* stream) {
  const int64_t lists = args.routes.D * args.routes.I * args.routes.P;
  launch(count_slots, {.blocks_x = lists, .threads = kListThreads}, args, stream);
  if (args.slot_of_R == nullptr) return;
  running(args.offsets, lists, stream);
  launch(list_slots, {.blocks_x = lists, .threads = kListThreads}, args, stream);
}

void places(const device::PlaceRows& args, void* stream) {
  launch(place_rows, {.blocks_x = args.P, .blocks_y = args.G, .threads = kListThreads}, args, stream);
}

LaunchShape a_block_each(int64_t tokens) { return {.blocks_x = tokens, .threads = kSumThreads}; }

/// body(X{}, std::integral_constant<int, most>{}) for rows of so many leaves a token.
template <class Body>
void by_leaves(Dtype rows, int64_t leaves, Body body) {
  if (leaves > kMostLeaves)
    config_error("{} rows of a token are summed, at most {} on a device", leaves, kMostLeaves);
  by_type(rows, [&]<class X>(X x) {
    if (leaves <= kFewLeaves) {
      body(x, std::integral_constant<int, kFewLeaves>{});
    } else {
      body(x, std::integral_constant<int, kMostLeaves>{});
    }
  });
}
void sum_arrived(Dtype rows, const device::SumTokens& args, void* stream) {
  by_leaves(rows, args.L, [&]<class X, int most>(X, std::integral_constant<int, most>) {
    launch(sum_tokens<X, most>, a_block_each(args.U), args, stream);
  });
}
void sum_passing(Dtype rows, const device::SumNode& args, void* stream) {
  by_leaves(rows, args.routes.k * args.routes.slices, [&]<class X, int most>(X, std::integral_constant<int, most>) {
    launch(sum_node<X, most>, a_block_each(args.routes.Q), args, stream);
  });
}
void launch_combine_sums(Dtype rows, const device::CombineSums& args, void* stream) {
  by_leaves(rows, args.routes.k * args.routes.slices, [&]<class X, int most>(X, std::integral_constant<int, most>) {
    launch(combine_sums<X, most>, a_block_each(args.routes.Q), args, stream);
  });
}
void numbers_of_slots(Dtype wide, const device::SlotNumbers& args, void* stream) {
  HEDDLE_CHECK(wide == Dtype::f32, "gates of {}", name_of(wide));
  launch(slot_numbers, flat(args.routes.Q * args.routes.k), args, stream);
}

void own(const device::OwnNumbers& args, void* stream) { launch(own_numbers, {}, args, stream); }
void choose(const device::ChooseRoute& args, void* stream) {
  launch(choose_route, {.shared_bytes = route_shared_bytes(args.G)}, args, stream);
}

void count(const device::CountExperts& args, void* stream) {
  launch(count_experts, {.blocks_x = args.E, .threads = kListThreads}, args, stream);
}
void put(const device::PutInSlots& args, void* stream) {
  launch(put_in_slots, {.blocks_x = args.E, .threads = kListThreads}, args, stream);
}

void offsets_here(const int32_t* n_2GP, int64_t G, int64_t P, int32_t* offsets, void* stream) {
  launch(local_offsets, {.threads = 32}, {n_2GP, offsets, G, P}, stream);
}

void launch_rows_in_slots(const device::RowsInSlots& args, void* stream) {
  launch(rows_in_slots, {.blocks_x = args.G, .threads = kListThreads}, args, stream);
}
void launch_fit_room(const device::FitRoom& args, void* stream) {
  launch(fit_room, {.threads = kListThreads}, args, stream);
}

}  // namespace

const device::RowWork* row_work() {
  static const device::RowWork work{.sum_parts = sum,
                                    .add = add,
                                    .cut_columns = cut,
                                    .copy = copy_bytes,
                                    .fill = fill_bytes,
                                    .upload = upload,
                                    .gather = gather,
                                    .on_host = on_host,
                                    .list_tokens = list,
                                    .tokens_of_places = tokens,
                                    .list_rows = list_of_rows,
                                    .place_rows = places,
                                    .sum_tokens = sum_arrived,
                                    .sum_node = sum_passing,
                                    .combine_sums = launch_combine_sums,
                                    .slot_numbers = numbers_of_slots,
                                    .own_numbers = own,
                                    .choose_route = choose,
                                    .count_experts = count,
                                    .put_in_slots = put,
                                    .local_offsets = offsets_here,
                                    .fit_room = launch_fit_room,
                                    .rows_in_slots = launch_rows_in_slots};
  return &work;
}

}  // namespace heddle::kernels::cuda
