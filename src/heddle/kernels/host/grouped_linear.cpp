// grouped_linear and its gradients on the CPU's matrix products, three ways of each (ir/product_way.h). Grouped is
// one parallel loop over the blocks of all experts; batched is one of equal blocks; serial is a loop for each
// expert. An element is the same chain of additions in each (gemm/gemm.h). R rows sorted by expert, expert e having
// rows offsets[e] … offsets[e+1]; K in, N out; w is [E,N,K]. Replicas of other ranks' experts have the last rows,
// and a loop of their own.
#include <algorithm>

#include "heddle/kernels/exact_grid.h"
#include "heddle/kernels/host/linear_operands.h"
#include "heddle/kernels/product_rows.h"

namespace heddle::kernels::host {
namespace {

using device::KernelCall;
using device::TensorView;

/// run(rows by expert, from which row of the operands on, weights) for the rank's experts, and for copies where
/// there are any with rows.
template <class Run>
void own_and_copies(const KernelCall& call, Run run) {
  const TensorView &offsets = call.in[2], &w = call.in[1], copies = operand(call.in, 3);
  const RowGroups all = groups_of(offsets, call.in[0].dim(0));
  if (!copies) return run(all, 0, w);
  const std::span<const int32_t> firsts(offsets.as<const int32_t>(), static_cast<size_t>(offsets.elements()));
  const auto own = static_cast<size_t>(w.dim(0));
  run(RowGroups(firsts.first(own + 1)), 0, w);
  if (firsts[own] < firsts.back()) run(RowGroups(firsts.subspan(own)), 0, copies);
}

/// The rows of a matrix from one on.
TensorView rows_from(TensorView matrix, int64_t first, int64_t count) {
  matrix.data = static_cast<std::byte*>(matrix.data) + first * matrix.dim(1) * size_of(matrix.dtype);
  matrix.dims[0] = count;
  return matrix;
}

/// The weight of one expert.
TensorView weight_of(TensorView w, int64_t expert) {
  const int64_t bytes = w.layout == ir::Layout::packed ? packed_bytes(w.dtype, 1, w.dim(1), w.dim(2))
                                                       : w.dim(1) * w.dim(2) * size_of(w.dtype);
  w.data = static_cast<std::byte*>(w.data) + expert * bytes;
  w.dims[0] = 1;
  return w;
}

/// The groups of an op whose text says that they are of equal size, which the offsets must be true to.
RowGroups equal_groups(const KernelCall& call, int64_t count) {
  const int64_t rows = call.in[0].dim(0), each = rows / count;
  const RowGroups found = groups_of(call.in[2], rows);
  HEDDLE_CHECK(found.count() == count, "'{}' of {} groups has offsets of {}", call.op->kind(), count,
               found.count());
  for (int64_t e = 0; e < count; ++e) {
    HEDDLE_CHECK(found.end(e) == (e + 1) * each, "'{}' is batched, and group {} of {} ends at row {} of {}",
                 call.op->kind(), e, count, found.end(e), rows);
  }
  return RowGroups::equal(count, each);
}

Scratch scratch_of(const KernelCall& call, const RowGroups& groups, int64_t n, int64_t k) {
  return {call.scratch, product_scratch_bytes({groups.count(), groups.end(groups.count() - 1), n, k})};
}

/// A way: how run(groups, first row, weights) is called.
struct Grouped {
  template <class Run>
  static void each(const KernelCall& call, Run run) {
    own_and_copies(call, run);
  }
};
struct Batched {
  template <class Run>
  static void each(const KernelCall& call, Run run) {
    run(equal_groups(call, call.in[1].dim(0)), 0, call.in[1]);
  }
};
struct Serial {
  template <class Run>
  static void each(const KernelCall& call, Run run) {
    own_and_copies(call, [&](const RowGroups& groups, int64_t, const TensorView& w) {
      for (int64_t e = 0; e < groups.count(); ++e) {
        const int64_t rows = groups.end(e) - groups.begin(e);
        if (rows > 0) run(RowGroups::one(rows), groups.begin(e), weight_of(w, e));
      }
    });
  }
};

template <class Way>
void run_grouped_linear(const KernelCall& call) {
  Way::each(call, [&](const RowGroups& groups, int64_t first, const TensorView& w) {
    const int64_t rows = groups.end(groups.count() - 1);
    linear_forward({.groups = groups,
                    .n = w.dim(1),
                    .k = w.dim(2),
                    .x = rows_of(rows_from(call.in[0], first, rows)),
                    .w = weights_of(w),
                    .y = out_rows_of(rows_from(call.out[0], first, rows)),
                    .scratch = scratch_of(call, groups, w.dim(1), w.dim(2))});
  });
}

template <class Way>
void run_grouped_linear_dgrad(const KernelCall& call) {
  Way::each(call, [&](const RowGroups& groups, int64_t first, const TensorView& w) {
    const int64_t rows = groups.end(groups.count() - 1);
    linear_dgrad({.groups = groups,
                  .n = w.dim(1),
                  .k = w.dim(2),
                  .dy = rows_of(rows_from(call.in[0], first, rows)),
                  .w = weights_of(w),
                  .dx = out_rows_of(rows_from(call.out[0], first, rows)),
                  .scratch = scratch_of(call, groups, w.dim(1), w.dim(2))});
  });
}

/// dw (+)= over the rows of the groups, of which the first lies at row `first` of the operands.
void sum_groups(const KernelCall& call, const RowGroups& groups, int64_t first, float* dw, bool overwrite) {
  const int64_t rows = groups.end(groups.count() - 1), n = call.updates[0].dim(1), k = call.updates[0].dim(2);
  linear_wgrad({.groups = groups,
                .n = n,
                .k = k,
                .dy = rows_of(rows_from(call.in[1], first, rows)),
                .x = rows_of(rows_from(call.in[0], first, rows)),
                .dw = dw,
                .overwrite = overwrite,
                .scratch = scratch_of(call, groups, n, k)});
}

/// A copy that no row has come to: its owner adds what is here all the same.
void clear_idle(const RowGroups& all, int64_t own, int64_t numbers, float* copies) {
  for (int64_t e = own; e < all.count(); ++e) {
    if (all.begin(e) == all.end(e)) std::fill_n(copies + (e - own) * numbers, numbers, 0.0F);
  }
}

/// Sums of the rank's experts by `own`, of copies one by one.
template <class Own>
void sum_own_and_copies(const KernelCall& call, Own sum_own) {
  const TensorView acc = call.updates[0], &offsets = call.in[2];
  const RowGroups all = groups_of(offsets, call.in[0].dim(0));
  const int64_t own = acc.dim(0), numbers = acc.dim(1) * acc.dim(2);
  sum_own(all);
  if (all.count() > own) clear_idle(all, own, numbers, call.out[0].as<float>());
  for (int64_t e = own; e < all.count(); ++e) {
    if (all.begin(e) == all.end(e)) continue;
    sum_groups(call, RowGroups::one(all.end(e) - all.begin(e)), all.begin(e),
               call.out[0].as<float>() + (e - own) * numbers, true);
  }
}

void run_grouped_linear_wgrad(const KernelCall& call) {
  sum_own_and_copies(call, [&](const RowGroups& all) {
    const auto own = static_cast<size_t>(call.updates[0].dim(0));
    const std::span<const int32_t> firsts(call.in[2].as<const int32_t>(), own + 1);
    sum_groups(call, all.count() == std::ssize(firsts) - 1 ? all : RowGroups(firsts), 0,
               call.updates[0].as<float>(), call.overwrite);
  });
}

void run_batched_wgrad(const KernelCall& call) {
  sum_groups(call, equal_groups(call, call.updates[0].dim(0)), 0, call.updates[0].as<float>(), call.overwrite);
}

void run_serial_wgrad(const KernelCall& call) {
  const int64_t numbers = call.updates[0].dim(1) * call.updates[0].dim(2);
  sum_own_and_copies(call, [&](const RowGroups& all) {
    for (int64_t e = 0; e < call.updates[0].dim(0); ++e) {
      sum_groups(call, RowGroups::one(all.end(e) - all.begin(e)), all.begin(e),
                 call.updates[0].as<float>() + e * numbers, call.overwrite);
    }
  });
}

int64_t partial_bytes(int64_t n, int64_t k) { return (n * k * 4 + 63) / 64 * 64; }

// Each segment of rows is one product into scratch, then added on the grid.
void run_grouped_linear_wgrad_exact(const KernelCall& call) {
  const TensorView x = call.in[0], dy = call.in[1], sum = call.updates[0];
  const int64_t N = sum.dim(1), K = sum.dim(2);
  auto* partial = reinterpret_cast<float*>(call.scratch);
  for_each_segment(
      call.in[2], operand(call.in, 3), [&](int64_t expert, int64_t first, int64_t last, bool is_first) {
        const bool own = expert < sum.dim(0);
        linear_wgrad(
            {.groups = RowGroups::one(last - first),
             .n = N,
             .k = K,
             .dy = rows_of(rows_from(dy, first, last - first)),
             .x = rows_of(rows_from(x, first, last - first)),
             .dw = partial,
             .overwrite = true,
             .scratch = {call.scratch + partial_bytes(N, K), product_scratch_bytes({1, last - first, N, K})}});
        double* sums = own ? sum.as<double>() : call.out[0].as<double>();
        add_on_grid(partial, N * K, is_first && (call.overwrite || !own),
                    sums + (own ? expert : expert - sum.dim(0)) * N * K);
      });
}

Support exact_supports(const ir::Listing& listing, const ir::Op& op) {
  if (listing.value(op.in[0]).dtype == Dtype::f64) return Support::no("the rows are f64");
  return product_support(listing, op.in[0], ir::none, op.in[1]);
}

int64_t exact_scratch(const ir::Listing& listing, const ir::Op& op, const ir::RowCounts& counts) {
  const ir::Value& sum = listing.value(op.updates[0]);
  return partial_bytes(sum.shape[1].count, sum.shape[2].count) +
         product_scratch_bytes(product_sizes(listing, op.in[0], sum, counts));
}

Support product_takes(const ir::Listing& listing, const ir::Op& op) {
  if (!op.updates.empty()) {
    if (listing.value(op.updates[0]).dtype != Dtype::f32) return Support::no("the accumulator is not f32");
    return product_support(listing, op.in[0], ir::none, op.in[1]);
  }
  if (const Support copies = product_support(listing, op.in[0], operand(op.in, 3), ir::none); !copies)
    return copies;
  return product_support(listing, op.in[0], op.in[1], op.out.empty() ? ir::none : op.out[0]);
}

template <ProductWay way>
Support supports(const ir::Listing& listing, const ir::Op& op) {
  if (const Support meant = goes(op, way); !meant) return meant;
  return product_takes(listing, op);
}

int64_t scratch_bytes(const ir::Listing& listing, const ir::Op& op, const ir::RowCounts& counts) {
  const ir::Value& weight = listing.value(op.updates.empty() ? op.in[1] : op.updates[0]);
  return product_scratch_bytes(
      product_sizes(listing, op.in[0], weight, counts, listing.value(op.in[2]).shape[0].count - 1));
}

}  // namespace

std::vector<KernelEntry> grouped_linear_kernels() {
  using enum ProductWay;
  std::vector<KernelEntry> all;
  const auto add = [&](std::string_view kind, std::string_view way, auto* can, device::Kernel run) {
    all.push_back({kind, "host", way, can, scratch_bytes, run, product_engine});
  };
  add("grouped_linear", "grouped", supports<grouped>, run_grouped_linear<Grouped>);
  add("grouped_linear", "batched", supports<batched>, run_grouped_linear<Batched>);
  add("grouped_linear", "serial", supports<serial>, run_grouped_linear<Serial>);
  add("grouped_linear_dgrad", "grouped", supports<grouped>, run_grouped_linear_dgrad<Grouped>);
  add("grouped_linear_dgrad", "batched", supports<batched>, run_grouped_linear_dgrad<Batched>);
  add("grouped_linear_dgrad", "serial", supports<serial>, run_grouped_linear_dgrad<Serial>);
  add("grouped_linear_wgrad", "grouped", supports<grouped>, run_grouped_linear_wgrad);
  add("grouped_linear_wgrad", "batched", supports<batched>, run_batched_wgrad);
  add("grouped_linear_wgrad", "serial", supports<serial>, run_serial_wgrad);
  all.push_back({"grouped_linear_wgrad_exact", "host", "serial", exact_supports, exact_scratch,
                 run_grouped_linear_wgrad_exact, product_engine});
  return all;
}

}  // namespace heddle::kernels::host
