// Entries of matrix products: linear and grouped_linear with their gradients, and the products of experts whose
// sums are exact. T rows, K in, N out; R rows sorted by expert.
//
// Where one operand is bf16 and the other f32 (the router's linear), the former is widened into scratch first.
#include <algorithm>

#include "heddle/kernels/cuda/backend.h"
#include "heddle/kernels/cuda/map_kernels.h"
#include "heddle/kernels/cuda/products/grouped.h"
#include "heddle/kernels/cuda/products/product_kernels.h"
#include "heddle/kernels/cuda/step_kernels.h"
#include "heddle/kernels/product_rows.h"
#include "heddle/kernels/rows_in_all.h"

namespace heddle::kernels::cuda {

namespace {

template <class X>
constexpr int64_t product_shared_bytes(bool a_by_k, bool b_by_k) {
  constexpr int64_t depth = 64 / sizeof(X), pad = 16 / sizeof(X);
  const int64_t a = a_by_k ? depth * (kProductM + pad) : kProductM * (depth + pad);
  const int64_t b = b_by_k ? depth * (kProductN + pad) : kProductN * (depth + pad);
  return kProductStages * (a + b) * static_cast<int64_t>(sizeof(X));
}

void launch_product(Dtype X, bool a_by_k, bool b_by_k, int64_t row_tiles, int64_t groups, const ProductArgs& args,
                    void* stream) {
  by_type(X, [&]<class T>(T) {
    auto* kernel = a_by_k ? product<T, true, true> : b_by_k ? product<T, false, true> : product<T, false, false>;
    launch(kernel,
           {.blocks_x = blocks_for(args.N, kProductN),
            .blocks_y = row_tiles,
            .blocks_z = groups,
            .threads = kProductThreads,
            .shared_bytes = product_shared_bytes<T>(a_by_k, b_by_k)},
           args, stream);
  });
}

void set_output(ProductArgs& args, const TensorView& c, Dtype X) {
  args.c = c.data;
  args.wide = c.dtype == Dtype::f32;
  args.narrow = c.dtype == Dtype::bf16 && X == Dtype::f32;
  HEDDLE_CHECK(args.wide || c.dtype == Dtype::bf16, "a product in {}", name_of(c.dtype));
}

}  // namespace

void multiply(const ProductCall& call, void* workspace, void* stream) {
  HEDDLE_CHECK(call.a.dtype == call.b.dtype, "a product of {} and {}", name_of(call.a.dtype),
               name_of(call.b.dtype));
  if (call.M == 0 || call.N == 0 || call.batch == 0) return;
  if (call.K > 0 && library_multiply(call, workspace, stream)) return;
  ProductArgs args{};
  args.a = call.a.data;
  args.b = call.b.data;
  args.bias_N = call.bias;
  args.M = call.M;
  args.N = call.N;
  args.K = call.K;
  args.a_pitch = call.a_by_k ? call.M : call.K;
  args.b_pitch = call.b_by_k ? call.N : call.K;
  args.c_pitch = call.N;
  args.cut = call.batch > 1 ? Groups::batch : Groups::none;
  args.add = call.add;
  set_output(args, call.c, call.a.dtype);
  launch_product(call.a.dtype, call.a_by_k, call.b_by_k, blocks_for(call.M, kProductM), call.batch, args, stream);
}

namespace {

/// The operands of a product in one type: where the types differ, the bf16 one widened into scratch.
struct Pair {
  TensorView a, b;
};
Pair alike(TensorView a, TensorView b, Scratch& scratch, void* stream) {
  if (a.dtype == b.dtype) return {a, b};
  TensorView& small = a.dtype == Dtype::bf16 ? a : b;
  auto* to = scratch.take<float>(small.elements());
  launch(cast<Bf16, float>, {.blocks_x = blocks_for(small.elements(), 256 * 8)}, {small.data, to, small.elements()},
         stream);
  small.data = to;
  small.dtype = Dtype::f32;
  return {a, b};
}

int64_t linear_scratch(const ir::Listing& listing, const ir::Op& op, const ir::RowCounts& rows) {
  Scratch scratch(nullptr);
  scratch.take<std::byte>(product_workspace_bytes());
  const Dtype a = listing.value(op.in[0]).dtype, b = listing.value(op.in[1]).dtype;
  if (a != b) scratch.take<float>(listing.elements(op.in[a == Dtype::bf16 ? 0 : 1], rows));
  if (op.updates.size() > 1 && op.updates[1] != ir::none) {
    const MatrixSize dy(listing, op.in[1], rows);
    scratch.take<float>(blocks_for(dy.rows, kMapRows) * dy.columns);
  }
  return scratch.bytes();
}

int64_t column_sums_scratch(const ir::Listing& listing, const ir::Op& op, const ir::RowCounts& rows) {
  const MatrixSize dy(listing, op.in[0], rows);
  Scratch scratch(nullptr);
  scratch.take<float>(blocks_for(dy.rows, kMapRows) * dy.columns);
  return scratch.bytes();
}

int64_t rows_in_all(const KernelCall& call) { return call.op->attributes.integer_or(kRowsInAll, 0); }

/// y = x·wᵀ + bias, or dx = dy·w.
template <bool is_dgrad>
void linear(const KernelCall& call) {
  Scratch scratch(call.scratch);
  void* workspace = scratch.take<std::byte>(product_workspace_bytes());
  const int64_t N = call.in[1].dim(0), K = call.in[1].dim(1);
  const Pair pair = alike(call.in[0], call.in[1], scratch, call.stream);
  multiply({.a = pair.a,
            .b = pair.b,
            .c = call.out[0],
            .b_by_k = is_dgrad,
            .M = call.out[0].rows(),
            .N = is_dgrad ? K : N,
            .K = is_dgrad ? N : K,
            .bias = is_dgrad ? nullptr : numbers<const float>(operand(call.in, 2)),
            .M_in_all = rows_in_all(call)},
           workspace, call.stream);
}

/// acc += Σ over rows of dy.
void add_column_sums(const TensorView& dy, Scratch& scratch, const TensorView& acc, const KernelCall& call) {
  const int64_t T = dy.rows(), N = dy.columns(), parts = blocks_for(T, kMapRows);
  auto* sums = scratch.take<float>(parts * N);
  by_type(dy.dtype, [&]<class X>(X) {
    launch(column_parts<X>, {.blocks_x = parts, .blocks_y = blocks_for(N, kMapThreads * 8), .threads = kMapThreads},
           {dy.data, sums, T, N}, call.stream);
  });
  add_column_parts(sums, parts, N, numbers<float>(acc), !call.overwrite, call.stream);
}

void linear_wgrad(const KernelCall& call) {
  Scratch scratch(call.scratch);
  void* workspace = scratch.take<std::byte>(product_workspace_bytes());
  const int64_t T = call.in[0].rows(), K = call.in[0].columns(), N = call.in[1].columns();
  const Pair pair = alike(call.in[0], call.in[1], scratch, call.stream);
  multiply({.a = pair.b,
            .b = pair.a,
            .c = call.updates[0],
            .a_by_k = true,
            .b_by_k = true,
            .M = N,
            .N = K,
            .K = T,
            .add = !call.overwrite},
           workspace, call.stream);
  const TensorView bias = operand(call.updates, 1);
  if (bias) add_column_sums(call.in[1], scratch, bias, call);
}

void add_bias_wgrad(const KernelCall& call) {
  Scratch scratch(call.scratch);
  add_column_sums(call.in[0], scratch, call.updates[0], call);
}

Support groups_fit(const ir::Listing& listing, const ir::Op& op) {
  if (const Support meant = goes(op, ProductWay::grouped); !meant) return meant;
  if (const Support types = narrow<Among::in, 0>(listing, op); !types) return types;
  if (listing.value(op.in[0]).dtype != listing.value(op.in[1]).dtype) return Support::no("operands of two types");
  return Support::yes();
}

}  // namespace

template <bool backward>
void rows_by(const TensorView& x, const TensorView& w, const int32_t* first, const TensorView& y, void* stream) {
  const int64_t E = w.dim(0), N = w.dim(1), K = w.dim(2);
  ProductArgs args{};
  args.a = x.data;
  args.b = w.data;
  args.offsets = first;
  args.M = x.rows();
  args.N = backward ? K : N;
  args.K = backward ? N : K;
  args.a_pitch = args.K;
  args.b_pitch = K;
  args.c_pitch = args.N;
  args.group_stride = N * K;
  args.groups = E;
  args.cut = Groups::rows;
  set_output(args, y, x.dtype);
  if (args.M == 0) return;
  if (x.dtype == Dtype::bf16 && hopper_grouped_rows(args, backward, stream)) return;
  launch_product(x.dtype, false, backward, blocks_for(args.M, kProductM) + E, 1, args, stream);
}

template void rows_by<false>(const TensorView&, const TensorView&, const int32_t*, const TensorView&, void*);
template void rows_by<true>(const TensorView&, const TensorView&, const int32_t*, const TensorView&, void*);

void grouped_sums(const TensorView& x, const TensorView& dy, const int32_t* first, int64_t E, float* acc, bool add,
                  void* stream) {
  ProductArgs args{};
  args.a = dy.data;
  args.b = x.data;
  args.c = acc;
  args.offsets = first;
  args.M = dy.columns();
  args.N = x.columns();
  args.a_pitch = args.M;
  args.b_pitch = args.c_pitch = args.N;
  args.group_stride = args.M * args.N;
  args.groups = E;
  args.cut = Groups::sums;
  args.wide = true;
  args.add = add;
  launch_product(x.dtype, true, true, blocks_for(args.M, kProductM), E, args, stream);
}

namespace {

/// grouped_linear: x, w, offsets, copies? -> y. grouped_linear_dgrad: dy, w, offsets, copies? -> dx. Rows of copies
/// of other ranks' experts come last.
template <bool backward>
void grouped_rows(const KernelCall& call) {
  const auto* offsets = numbers<const int32_t>(call.in[2]);
  const TensorView copies = operand(call.in, 3);
  rows_by<backward>(call.in[0], call.in[1], offsets, call.out[0], call.stream);
  if (copies) rows_by<backward>(call.in[0], copies, offsets + call.in[1].dim(0), call.out[0], call.stream);
}

/// Sums of the rank's experts, and of copies, which begin here.
void grouped_wgrad(const KernelCall& call) {
  const auto* offsets = numbers<const int32_t>(call.in[2]);
  const int64_t E = call.updates[0].dim(0);
  grouped_sums(call.in[0], call.in[1], offsets, E, numbers<float>(call.updates[0]), !call.overwrite, call.stream);
  const TensorView copies = operand(call.out, 0);
  if (copies)
    grouped_sums(call.in[0], call.in[1], offsets + E, copies.dim(0), numbers<float>(copies), false, call.stream);
}

/// x, dy, offsets, n?: for each expert and source a partial of its own, put on the grid.
void grouped_wgrad_exact(const KernelCall& call) {
  const TensorView n = operand(call.in, 3), copies = operand(call.out, 0);
  const int64_t own = call.updates[0].dim(0), E = own + (copies ? copies.dim(0) : 0);
  const int64_t sources = n ? n.dim(1) : 1;
  const int64_t each = call.in[0].columns() * call.in[1].columns();
  Scratch scratch(call.scratch);
  auto* first = scratch.take<int32_t>(E * sources + 1);
  auto* partial = scratch.take<float>(each);
  launch(segments, {.threads = 32},
         {numbers<const int32_t>(call.in[2]), numbers<const int32_t>(n), first, E, sources}, call.stream);
  for (int64_t i = 0; i < E * sources; ++i) {
    grouped_sums(call.in[0], call.in[1], first + i, 1, partial, false, call.stream);
    const int64_t e = i / sources;
    double* sum =
        e < own ? numbers<double>(call.updates[0]) + e * each : numbers<double>(copies) + (e - own) * each;
    launch(add_on_grid, {.blocks_x = std::min<int64_t>(blocks_for(each, 256), 1 << 16)},
           {partial, sum, each, (call.overwrite || e >= own) && i % sources == 0}, call.stream);
  }
}
int64_t exact_scratch(const ir::Listing& listing, const ir::Op& op, const ir::RowCounts&) {
  const ir::Shape& acc = listing.value(op.updates[0]).shape;
  const int64_t sources = op.in.size() > 3 && op.in[3] != ir::none ? listing.value(op.in[3]).shape[1].count : 1;
  Scratch scratch(nullptr);
  scratch.take<int32_t>((acc[0].count + op.attributes.integer_or("copies", 0)) * sources + 1);
  scratch.take<float>(acc[1].count * acc[2].count);
  return scratch.bytes();
}

}  // namespace

std::vector<KernelEntry> linear_entries() {
  return {entry("linear", "tiles", linear<false>, narrow<Among::in, 0>, linear_scratch),
          entry("detached_linear", "tiles", linear<false>, narrow<Among::in, 0>, linear_scratch),
          entry("linear_dgrad", "tiles", linear<true>, narrow<Among::in, 0>, linear_scratch),
          entry("linear_wgrad", "tiles", linear_wgrad, narrow<Among::in, 0>, linear_scratch),
          entry("add_bias_wgrad", "rows", add_bias_wgrad, narrow<Among::in, 0>, column_sums_scratch),
          entry("grouped_linear", "tiles", grouped_rows<false>, groups_fit),
          entry("grouped_linear_dgrad", "tiles", grouped_rows<true>, groups_fit),
          entry("grouped_linear_wgrad", "tiles", grouped_wgrad, groups_fit),
          entry("grouped_linear_wgrad_exact", "tiles", grouped_wgrad_exact, groups_fit, exact_scratch)};
}

}  // namespace heddle::kernels::cuda
