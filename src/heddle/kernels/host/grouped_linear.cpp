// grouped_linear and its gradients on the CPU's matrix products: one parallel loop over the blocks of all experts.
// R rows sorted by expert, expert e having rows offsets[e] … offsets[e+1]; K in, N out; w is [E,N,K]. Copies of
// other ranks' experts have the last rows, and a loop of their own.
#include <algorithm>

#include "heddle/kernels/exact_grid.h"
#include "heddle/kernels/host/linear_operands.h"

namespace heddle::kernels::host {
namespace {

using device::KernelCall;
using device::TensorView;

/// run(rows by expert, weights) for the rank's experts, and for copies where there are any with rows.
template <class Run>
void own_and_copies(const KernelCall& call, Run run) {
  const TensorView &offsets = call.in[2], &w = call.in[1], copies = operand(call.in, 3);
  const RowGroups all = groups_of(offsets, call.in[0].dim(0));
  if (!copies) return run(all, w);
  const std::span<const int32_t> firsts(offsets.as<const int32_t>(), static_cast<size_t>(offsets.elements()));
  const auto own = static_cast<size_t>(w.dim(0));
  run(RowGroups(firsts.first(own + 1)), w);
  if (firsts[own] < firsts.back()) run(RowGroups(firsts.subspan(own)), copies);
}

void run_grouped_linear(const KernelCall& call) {
  own_and_copies(call, [&](const RowGroups& groups, const TensorView& w) {
    linear_forward({.groups = groups,
                    .n = w.dim(1),
                    .k = w.dim(2),
                    .x = rows_of(call.in[0]),
                    .w = weights_of(w),
                    .y = out_rows_of(call.out[0]),
                    .scratch = product_scratch(call, groups.count())});
  });
}

void run_grouped_linear_dgrad(const KernelCall& call) {
  own_and_copies(call, [&](const RowGroups& groups, const TensorView& w) {
    linear_dgrad({.groups = groups,
                  .n = w.dim(1),
                  .k = w.dim(2),
                  .dy = rows_of(call.in[0]),
                  .w = weights_of(w),
                  .dx = out_rows_of(call.out[0]),
                  .scratch = product_scratch(call, groups.count())});
  });
}

/// A copy that no row has come to: its owner adds what is here all the same.
void clear_idle(const RowGroups& all, int64_t own, int64_t numbers, float* copies) {
  for (int64_t e = own; e < all.count(); ++e) {
    if (all.begin(e) == all.end(e)) std::fill_n(copies + (e - own) * numbers, numbers, 0.0F);
  }
}

void run_grouped_linear_wgrad(const KernelCall& call) {
  const TensorView x = call.in[0], dy = call.in[1], acc = call.updates[0], &offsets = call.in[2];
  const RowGroups all = groups_of(offsets, x.dim(0));
  const std::span<const int32_t> firsts(offsets.as<const int32_t>(), static_cast<size_t>(offsets.elements()));
  const int64_t own = acc.dim(0), n = acc.dim(1), k = acc.dim(2);
  const auto sum = [&](const RowGroups& groups, float* dw, bool overwrite) {
    linear_wgrad({.groups = groups,
                  .n = n,
                  .k = k,
                  .dy = rows_of(dy),
                  .x = rows_of(x),
                  .dw = dw,
                  .overwrite = overwrite,
                  .scratch = product_scratch(call, groups.count())});
  };
  sum(all.count() == own ? all : RowGroups(firsts.first(static_cast<size_t>(own) + 1)), acc.as<float>(),
      call.overwrite);
  if (all.count() > own) clear_idle(all, own, n * k, call.out[0].as<float>());
  for (int64_t e = own; e < all.count(); ++e) {
    if (all.begin(e) == all.end(e)) continue;
    sum(RowGroups(firsts.subspan(static_cast<size_t>(e), 2)), call.out[0].as<float>() + (e - own) * n * k, true);
  }
}

int64_t partial_bytes(int64_t n, int64_t k) { return (n * k * 4 + 63) / 64 * 64; }

// Each segment of rows is one product into scratch, then added on the grid.
void run_grouped_linear_wgrad_exact(const KernelCall& call) {
  const TensorView x = call.in[0], dy = call.in[1], sum = call.updates[0];
  const int64_t N = sum.dim(1), K = sum.dim(2);
  auto* partial = reinterpret_cast<float*>(call.scratch);
  for_each_segment(call.in[2], operand(call.in, 3),
                   [&](int64_t expert, int64_t first, int64_t last, bool is_first) {
                     const bool own = expert < sum.dim(0);
                     const auto rows_from = [&](TensorView v) {
                       v.data = static_cast<std::byte*>(v.data) + first * v.dim(1) * size_of(v.dtype);
                       v.dims[0] = last - first;
                       return rows_of(v);
                     };
                     linear_wgrad({.groups = RowGroups::one(last - first),
                                   .n = N,
                                   .k = K,
                                   .dy = rows_from(dy),
                                   .x = rows_from(x),
                                   .dw = partial,
                                   .overwrite = true,
                                   .scratch = {call.scratch + partial_bytes(N, K), product_scratch_bytes(1)}});
                     double* sums = own ? sum.as<double>() : call.out[0].as<double>();
                     add_on_grid(partial, N * K, is_first && (call.overwrite || !own),
                                 sums + (own ? expert : expert - sum.dim(0)) * N * K);
                   });
}

Support exact_supports(const ir::Listing& listing, const ir::Op& op) {
  if (listing.value(op.in[0]).dtype == Dtype::f64) return Support::no("the rows are f64");
  return product_support(listing, op.in[0], ir::none, op.in[1]);
}

int64_t exact_scratch(const ir::Listing& listing, const ir::Op& op, const ir::RowCounts&) {
  const ir::Shape& sum = listing.value(op.updates[0]).shape;
  return partial_bytes(sum[1].count, sum[2].count) + product_scratch_bytes(1);
}

Support supports(const ir::Listing& listing, const ir::Op& op) {
  if (const Support copies = product_support(listing, op.in[0], operand(op.in, 3), ir::none); !copies)
    return copies;
  return product_support(listing, op.in[0], op.in[1], op.out.empty() ? ir::none : op.out[0]);
}

Support wgrad_supports(const ir::Listing& listing, const ir::Op& op) {
  if (listing.value(op.updates[0]).dtype != Dtype::f32) return Support::no("the accumulator is not f32");
  return product_support(listing, op.in[0], ir::none, op.in[1]);
}

int64_t scratch_bytes(const ir::Listing& listing, const ir::Op& op, const ir::RowCounts&) {
  return product_scratch_bytes(listing.value(op.in[2]).shape[0].count - 1);
}

}  // namespace

std::vector<KernelEntry> grouped_linear_kernels() {
  return {
      {"grouped_linear", "host", "gemm", supports, scratch_bytes, run_grouped_linear, product_engine},
      {"grouped_linear_dgrad", "host", "gemm", supports, scratch_bytes, run_grouped_linear_dgrad, product_engine},
      {"grouped_linear_wgrad", "host", "gemm", wgrad_supports, scratch_bytes, run_grouped_linear_wgrad,
       product_engine},
      {"grouped_linear_wgrad_exact", "host", "gemm", exact_supports, exact_scratch, run_grouped_linear_wgrad_exact,
       product_engine}};
}

}  // namespace heddle::kernels::host
