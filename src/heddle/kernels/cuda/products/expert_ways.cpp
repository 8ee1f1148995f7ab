// The ways of experts' products beside the grouped one (ir/product_way.h). Batched: equal rows of all experts as
// one product of many matrices. Serial: one expert after the other. Equal rows take one product each. Rows of any
// size, which only the device knows, take the grouped kernel with one group, whose blocks beyond the expert's rows
// end. R rows sorted by expert, E experts; K in, N out.
//
// By the own kernels an element is the same sum in increasing k as in the grouped product. The vendor's library
// adds in the order of the algorithm that it takes for the shape.
#include "heddle/ir/equal_groups.h"
#include "heddle/kernels/cuda/backend.h"
#include "heddle/kernels/cuda/products/grouped.h"
#include "heddle/kernels/product_rows.h"

namespace heddle::kernels::cuda {

namespace {

enum class Kind : uint8_t { forward, dgrad, wgrad };

/// The product of all experts as one of E matrices.
template <Kind kind>
ProductCall batch_of(const KernelCall& call) {
  const TensorView& matrices = kind == Kind::wgrad ? call.updates[0] : call.in[1];
  const int64_t E = matrices.dim(0), N = matrices.dim(1), K = matrices.dim(2), each = call.in[0].rows() / E;
  HEDDLE_CHECK(call.in[0].rows() == each * E, "{} rows in {} equal groups", call.in[0].rows(), E);
  if constexpr (kind == Kind::wgrad) {
    return {.a = call.in[1],
            .b = call.in[0],
            .c = matrices,
            .a_by_k = true,
            .b_by_k = true,
            .M = N,
            .N = K,
            .K = each,
            .batch = E,
            .add = !call.overwrite};
  }
  constexpr bool back = kind == Kind::dgrad;
  return {.a = call.in[0],
          .b = matrices,
          .c = call.out[0],
          .b_by_k = back,
          .M = each,
          .N = back ? K : N,
          .K = back ? N : K,
          .batch = E};
}

template <Kind kind>
void batched(const KernelCall& call) {
  multiply(batch_of<kind>(call), call.scratch, call.stream);
}

/// One of its matrices.
TensorView matrix(TensorView view, int64_t at, int64_t elements) {
  view.data = static_cast<std::byte*>(view.data) + at * elements * size_of(view.dtype);
  return view;
}

template <Kind kind>
void serial_equal(const KernelCall& call) {
  const ProductCall all = batch_of<kind>(call);
  for (int64_t e = 0; e < all.batch; ++e) {
    ProductCall one = all;
    one.batch = 1;
    one.a = matrix(all.a, e, all.M * all.K);
    one.b = matrix(all.b, e, all.N * all.K);
    one.c = matrix(all.c, e, all.M * all.N);
    multiply(one, call.scratch, call.stream);
  }
}

/// The rows of each expert of w, which begin at first[0].
template <bool backward>
void rows_one_by_one(const KernelCall& call, const TensorView& w, const int32_t* first) {
  for (int64_t e = 0; e < w.dim(0); ++e) {
    TensorView own = matrix(w, e, w.dim(1) * w.dim(2));
    own.dims[0] = 1;
    rows_by<backward>(call.in[0], own, first + e, call.out[0], call.stream);
  }
}

void sums_one_by_one(const KernelCall& call, const TensorView& sums, const int32_t* first, bool add) {
  for (int64_t e = 0; e < sums.dim(0); ++e) {
    grouped_sums(call.in[0], call.in[1], first + e, 1, numbers<float>(sums) + e * sums.dim(1) * sums.dim(2), add,
                 call.stream);
  }
}

/// Copies of other ranks' experts have the last rows, and sums that begin here.
template <Kind kind>
void serial(const KernelCall& call) {
  const auto* first = numbers<const int32_t>(call.in[2]);
  if constexpr (kind == Kind::wgrad) {
    const TensorView copies = operand(call.out, 0);
    sums_one_by_one(call, call.updates[0], first, !call.overwrite);
    if (copies) sums_one_by_one(call, copies, first + call.updates[0].dim(0), false);
  } else {
    const TensorView copies = operand(call.in, 3);
    rows_one_by_one<kind == Kind::dgrad>(call, call.in[1], first);
    if (copies) rows_one_by_one<kind == Kind::dgrad>(call, copies, first + call.in[1].dim(0));
  }
}

Support alike(const ir::Listing& listing, const ir::Op& op) {
  if (const Support types = narrow<Among::in, 0>(listing, op); !types) return types;
  if (listing.value(op.in[0]).dtype != listing.value(op.in[1]).dtype) return Support::no("operands of two types");
  return Support::yes();
}

Support without_copies(const ir::Op& op) {
  const bool copies = op.attributes.integer_or("copies", 0) != 0 || (op.in.size() > 3 && op.in[3] != ir::none);
  return copies ? Support::no("replicas of experts have any number of rows") : Support::yes();
}

Support may_batch(const ir::Listing& listing, const ir::Op& op) {
  if (const Support meant = goes(op, ProductWay::batched); !meant) return meant;
  if (const Support own = without_copies(op); !own) return own;
  return alike(listing, op);
}

Support equal_in_turn(const ir::Listing& listing, const ir::Op& op) {
  if (const Support meant = goes(op, ProductWay::serial); !meant) return meant;
  if (const Support own = without_copies(op); !own) return own;
  if (!ir::groups_are_equal(listing, op.in[2])) return Support::no("only the device knows how many rows each has");
  return alike(listing, op);
}

Support in_turn(const ir::Listing& listing, const ir::Op& op) {
  if (const Support meant = goes(op, ProductWay::serial); !meant) return meant;
  return alike(listing, op);
}

int64_t workspace(const ir::Listing&, const ir::Op&, const ir::RowCounts&) { return product_workspace_bytes(); }

}  // namespace

std::vector<KernelEntry> expert_way_entries() {
  using enum Kind;
  return {entry("grouped_linear", "batched", batched<forward>, may_batch, workspace),
          entry("grouped_linear", "serial", serial_equal<forward>, equal_in_turn, workspace),
          entry("grouped_linear", "serial_tiles", serial<forward>, in_turn),
          entry("grouped_linear_dgrad", "batched", batched<dgrad>, may_batch, workspace),
          entry("grouped_linear_dgrad", "serial", serial_equal<dgrad>, equal_in_turn, workspace),
          entry("grouped_linear_dgrad", "serial_tiles", serial<dgrad>, in_turn),
          entry("grouped_linear_wgrad", "batched", batched<wgrad>, may_batch, workspace),
          entry("grouped_linear_wgrad", "serial", serial_equal<wgrad>, equal_in_turn, workspace),
          entry("grouped_linear_wgrad", "serial_tiles", serial<wgrad>, in_turn)};
}

}  // namespace heddle::kernels::cuda
