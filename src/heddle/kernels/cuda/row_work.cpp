// The cuda backend's part of collectives: device/row_work.h.
#include "heddle/device/row_work.h"

#include <algorithm>

#include "heddle/kernels/cuda/backend.h"
#include "heddle/kernels/cuda/exchange_kernels.h"
#include "heddle/kernels/cuda/map_kernels.h"
#include "heddle/kernels/cuda/router_kernels.h"
#include "heddle/kernels/cuda/row_kernels.h"

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

void count(const int32_t* experts_Tk, int64_t T, int64_t k, int64_t E, int32_t* counts_E, void* stream) {
  // The kernel writes what expert e has at e + 1.
  launch(count_rows, {.blocks_x = E}, {experts_Tk, nullptr, nullptr, counts_E - 1, T, k, E}, stream);
}

void sort(const int32_t* experts_Tk, int64_t T, int64_t k, int64_t E, int32_t* row_of_Tk, int32_t* slot_of_R,
          int32_t* offsets, void* stream) {
  const SortRowsArgs args{experts_Tk, row_of_Tk, nullptr, offsets, T, k, E};
  launch(count_rows, {.blocks_x = E}, args, stream);
  launch(sum_rows, {.threads = 32}, args, stream);
  launch(sort_rows, {.blocks_x = E}, args, stream);
  launch(slots_of_rows, flat(T * k), {row_of_Tk, slot_of_R, T * k}, stream);
}

void gather(const TensorView& from, const int32_t* slot_of_R, int64_t k, int64_t R, void* to, void* stream) {
  by_type(from.dtype, [&]<class X>(X) {
    const int64_t H = from.columns();
    launch(gather_rows<X>, {.blocks_x = std::min<int64_t>(blocks_for(R * blocks_for(H, 8), 256), 1 << 16)},
           {from.data, slot_of_R, to, R, H, from.rows(), k}, stream);
  });
}

void tree(const void* rows, const float* g_Tk, const int32_t* row_of_Tk, const TensorView& experts_Tk,
          const int32_t* key_of_E, const TensorView& residual_TH, const TensorView& to_TH, void* stream) {
  HEDDLE_CHECK(experts_Tk.dim(1) <= kMostLeaves, "{} experts a token", experts_Tk.dim(1));
  by_type(to_TH.dtype, [&]<class X>(X) {
    TreeSumArgs args{};
    args.rows = rows;
    args.g_Tk = g_Tk;
    args.row_of_Tk = row_of_Tk;
    args.experts_Tk = numbers<const int32_t>(experts_Tk);
    args.key_of_E = key_of_E;
    args.residual_TH = numbers<const X>(residual_TH);
    args.to_TH = numbers<X>(to_TH);
    args.T = experts_Tk.dim(0);
    args.k = experts_Tk.dim(1);
    args.H = to_TH.columns();
    launch(tree_sum<X>, {.blocks_x = args.T, .threads = 128}, args, stream);
  });
}

void offsets_here(const int32_t* n_2GP, int64_t G, int64_t P, int32_t* offsets, void* stream) {
  launch(local_offsets, {.threads = 32}, {n_2GP, offsets, G, P}, stream);
}

}  // namespace

const device::RowWork* row_work() {
  static const device::RowWork work{.sum_parts = sum,
                                    .add = add,
                                    .cut_columns = cut,
                                    .copy = copy_bytes,
                                    .zero = zero_bytes,
                                    .upload = upload,
                                    .count_rows = count,
                                    .sort_rows = sort,
                                    .gather = gather,
                                    .tree_sum = tree,
                                    .local_offsets = offsets_here};
  return &work;
}

}  // namespace heddle::kernels::cuda
