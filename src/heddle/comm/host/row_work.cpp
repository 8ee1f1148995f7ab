#include "heddle/comm/host/row_work.h"

#include <algorithm>
#include <cstring>

#include "heddle/base/error.h"

namespace heddle::comm {

namespace {

/// out_i = Σ_r in order parts[r·stride + i].
template <class X, class A>
void sum_parts_in(const std::byte* parts, int64_t stride, int64_t ranks, int64_t count, void* out) {
  const auto* x = reinterpret_cast<const X*>(parts);
  auto* to = static_cast<X*>(out);
  for (int64_t i = 0; i < count; ++i) {
    A sum = static_cast<A>(x[i]);
    for (int64_t r = 1; r < ranks; ++r) sum += static_cast<A>(x[r * stride + i]);
    to[i] = X(sum);
  }
}

void sum_parts(Dtype dtype, const std::byte* parts, int64_t stride, int64_t ranks, int64_t count, void* out,
               void*) {
  switch (dtype) {
    case Dtype::f64: return sum_parts_in<double, double>(parts, stride, ranks, count, out);
    case Dtype::f32: return sum_parts_in<float, float>(parts, stride, ranks, count, out);
    case Dtype::bf16: return sum_parts_in<bf16, float>(parts, stride, ranks, count, out);
    default: internal_error("a sum of {}", name_of(dtype));
  }
}

void add(Dtype dtype, void* to, const void* from, int64_t count, void*) {
  const auto add_in = [&]<class A>(A* sum) {
    for (int64_t i = 0; i < count; ++i) sum[i] += static_cast<const A*>(from)[i];
  };
  dtype == Dtype::f64 ? add_in(static_cast<double*>(to)) : add_in(static_cast<float*>(to));
}

void cut_columns(std::byte* whole, std::byte* parts, int64_t rows, int64_t width, int64_t ranks, bool join, void*) {
  for (int64_t r = 0; r < ranks; ++r) {
    for (int64_t i = 0; i < rows; ++i) {
      std::byte *a = whole + (i * ranks + r) * width, *b = parts + (r * rows + i) * width;
      std::memcpy(join ? a : b, join ? b : a, static_cast<size_t>(width));
    }
  }
}

void copy(void* to, const void* from, int64_t bytes, void*) {
  if (bytes > 0) std::memcpy(to, from, static_cast<size_t>(bytes));
}
void fill(void* at, int byte, int64_t bytes, void*) {
  if (bytes > 0) std::memset(at, byte, static_cast<size_t>(bytes));
}

void gather(Dtype dtype, const void* from, int64_t H, const int32_t* index_R, int64_t each, int64_t R, void* to,
            void*) {
  const int64_t bytes = H * size_of(dtype);
  for (int64_t r = 0; r < R; ++r) {
    copy(static_cast<std::byte*>(to) + r * bytes, static_cast<const std::byte*>(from) + index_R[r] / each * bytes,
         bytes, nullptr);
  }
}

void on_host(device::HostWork work, void*) {
  work.run(static_cast<const std::byte*>(work.from), static_cast<std::byte*>(work.to));
}

void local_offsets(const int32_t* n_2GP, int64_t G, int64_t P, int32_t* offsets, void*) {
  offsets[0] = 0;
  for (int64_t e = 0; e < P; ++e) {
    offsets[e + 1] = offsets[e];
    for (int64_t s = 0; s < G; ++s) offsets[e + 1] += n_2GP[(G + s) * P + e];
  }
}

void fit_room(const device::FitRoom& args, void*) {
  const int64_t half = args.G * args.P;
  int64_t rows = 0;  // that this rank gets
  for (int64_t i = half; i < 2 * half; ++i) rows += args.n_2GP[i];
  const bool fits = rows <= args.G * args.room;
  for (int64_t r = 0; r < args.G; ++r) {
    const bool there = (args.asked_G[r] <= args.room) != args.second;
    args.to_G[r] = there ? static_cast<int32_t>(r) : device::kNoRank;
    for (int64_t i = r * args.P; i < (r + 1) * args.P; ++i) args.fitting_2GP[i] = there ? args.n_2GP[i] : 0;
  }
  for (int64_t i = half; i < 2 * half; ++i) args.fitting_2GP[i] = fits != args.second ? args.n_2GP[i] : 0;
  *args.beyond = fits || args.second ? 0 : -1;
}

}  // namespace

const device::RowWork* host_row_work() {
  static const device::RowWork work{.in_place = true,
                                    .sum_parts = sum_parts,
                                    .add = add,
                                    .cut_columns = cut_columns,
                                    .copy = copy,
                                    .fill = fill,
                                    .upload = copy,
                                    .gather = gather,
                                    .on_host = on_host,
                                    .list_tokens = host::list_tokens,
                                    .tokens_of_places = host::tokens_of_places,
                                    .list_rows = host::list_rows,
                                    .place_rows = host::place_rows,
                                    .sum_tokens = host::sum_tokens,
                                    .sum_node = host::sum_node,
                                    .combine_sums = host::combine_sums,
                                    .slot_numbers = host::slot_numbers,
                                    .own_numbers = host::own_numbers,
                                    .choose_route = host::choose_route,
                                    .count_experts = host::count_experts,
                                    .put_in_slots = host::put_in_slots,
                                    .local_offsets = local_offsets,
                                    .fit_room = fit_room,
                                    .rows_in_slots = nullptr};
  return &work;
}

}  // namespace heddle::comm
