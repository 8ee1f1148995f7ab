// linear, its gradients and pack_weight on the CPU's matrix products. T rows, K in, N out; w is [N,K].
#include <omp.h>

#include <algorithm>

#include "heddle/kernels/host/linear_operands.h"
#include "heddle/kernels/rows_in_all.h"

namespace heddle::kernels::host {

using device::KernelCall;
using device::TensorView;

RowGroups groups_of(const TensorView& offsets, int64_t rows) {
  const int64_t experts = offsets.elements() - 1;
  const auto* first = offsets.as<const int32_t>();
  HEDDLE_CHECK(experts >= 1 && first[0] == 0 && first[experts] == rows,
               "offsets of {} experts run from {} to {}, there are {} rows", experts, first[0], first[experts],
               rows);
  return RowGroups(std::span(first, static_cast<size_t>(experts + 1)));
}

WeightSizes weight_sizes(const ir::Value& weight) {
  const ir::Shape& shape = weight.shape;
  HEDDLE_CHECK(shape.size() == 2 || shape.size() == 3, "weight '{}' has {} dims", weight.name, shape.size());
  WeightSizes sizes;
  if (shape.size() == 3) sizes.experts = shape[0].count;
  sizes.n = shape[shape.size() - 2].count;
  sizes.k = shape.back().count;
  return sizes;
}

Support product_support(const ir::Listing& listing, ir::ValueId rows, ir::ValueId weight, ir::ValueId result) {
  for (const ir::ValueId id : {rows, weight, result}) {
    if (id == ir::none) continue;
    if (const Support support = gemm_supported(listing.value(id).dtype); !support) return support;
  }
  if (weight == ir::none || listing.value(weight).layout != ir::Layout::packed) return Support::yes();
  const ir::Value& w = listing.value(weight);
  const WeightSizes sizes = weight_sizes(w);
  if (w.packed_bytes != packed_bytes(w.dtype, sizes.experts, sizes.n, sizes.k)) {
    return Support::no(
        fmt::format("'{}' is not packed as this machine's engine {} packs", w.name, name_of(best_engine(w.dtype))));
  }
  if (takes_bf16_only(best_engine(w.dtype)) && listing.value(rows).dtype != Dtype::bf16) {
    return Support::no("a packed bf16 weight multiplies bf16 rows only");
  }
  return Support::yes();
}

std::string_view product_engine(const ir::Listing& listing, const ir::Op& op) {
  const bool narrow = listing.value(op.in[0]).dtype == Dtype::bf16 && listing.value(op.in[1]).dtype == Dtype::bf16;
  return name_of(best_engine(narrow ? Dtype::bf16 : Dtype::f32));
}

namespace {
int64_t processors() {
  static const int64_t count = std::max(1, omp_get_num_procs());
  return count;
}
}  // namespace

int64_t product_scratch_bytes(const ProductSizes& sizes) {
  return gemm_scratch_bytes(sizes, static_cast<int>(processors()));
}

ProductSizes product_sizes(const ir::Listing& listing, ir::ValueId rows, const ir::Value& weight,
                           const ir::RowCounts& counts, int64_t groups) {
  const WeightSizes sizes = weight_sizes(weight);
  const int64_t columns = listing.value(rows).shape.back().count;
  return {groups, listing.elements(rows, counts) / columns, sizes.n, sizes.k};
}
ProductSizes product_sizes(const TensorView& rows, const TensorView& weight, int64_t groups) {
  return {groups, rows.dim(0), weight.dim(weight.rank - 2), weight.dim(weight.rank - 1)};
}

namespace {

Scratch scratch_of(const KernelCall& call, const TensorView& weight) {
  return {call.scratch, product_scratch_bytes(product_sizes(call.in[0], weight))};
}

void run_linear(const KernelCall& call) {
  const TensorView x = call.in[0], w = call.in[1], bias = operand(call.in, 2);
  linear_forward({.groups = RowGroups::one(x.dim(0)),
                  .n = w.dim(0),
                  .k = w.dim(1),
                  .x = rows_of(x),
                  .w = weights_of(w),
                  .bias = bias.as<const float>(),
                  .y = out_rows_of(call.out[0]),
                  .scratch = scratch_of(call, w)});
}

void run_linear_dgrad(const KernelCall& call) {
  const TensorView dy = call.in[0], w = call.in[1];
  linear_dgrad({.groups = RowGroups::one(dy.dim(0)),
                .n = w.dim(0),
                .k = w.dim(1),
                .dy = rows_of(dy),
                .w = weights_of(w),
                .dx = out_rows_of(call.out[0]),
                .scratch = scratch_of(call, w)});
}

void run_linear_wgrad(const KernelCall& call) {
  const TensorView x = call.in[0], dy = call.in[1], acc = call.updates[0], bias = operand(call.updates, 1);
  linear_wgrad({.groups = RowGroups::one(x.dim(0)),
                .n = acc.dim(0),
                .k = acc.dim(1),
                .dy = rows_of(dy),
                .x = rows_of(x),
                .dw = acc.as<float>(),
                .dbias = bias.as<float>(),
                .overwrite = call.overwrite,
                .scratch = scratch_of(call, acc)});
}

void run_pack_weight(const KernelCall& call) {
  const TensorView master = call.in[0];
  const bool grouped = master.rank == 3;
  pack_weights(call.updates[0].dtype, master.data, master.dtype, grouped ? master.dim(0) : 1,
               master.dim(grouped ? 1 : 0), master.dim(grouped ? 2 : 1), call.updates[0].data);
}

Support linear_supports(const ir::Listing& listing, const ir::Op& op) {
  const ir::ValueId bias = operand(op.in, 2);
  if (bias != ir::none && listing.value(bias).dtype != Dtype::f32) return Support::no("the bias is not f32");
  return product_support(listing, op.in[0], op.in[1], op.out.empty() ? ir::none : op.out[0]);
}

Support linear_wgrad_supports(const ir::Listing& listing, const ir::Op& op) {
  for (const ir::ValueId id : op.updates) {
    if (listing.value(id).dtype != Dtype::f32) return Support::no("the accumulator is not f32");
  }
  return product_support(listing, op.in[0], ir::none, op.in[1]);
}

Support pack_weight_supports(const ir::Listing& listing, const ir::Op& op) {
  const ir::Value &master = listing.value(op.in[0]), &w = listing.value(op.updates[0]);
  if (const Support support = gemm_supported(master.dtype); !support) return support;
  if (w.layout != ir::Layout::packed) return Support::no("the weight is not packed; cast_weight rounds rows");
  if (const Support support = gemm_supported(w.dtype); !support) return support;
  const WeightSizes sizes = weight_sizes(master);
  if (packed_bytes(w.dtype, 1, 1, 1) == 0) {
    return Support::no(fmt::format("this machine's engine {} reads rows", name_of(best_engine(w.dtype))));
  }
  if (w.packed_bytes != packed_bytes(w.dtype, sizes.experts, sizes.n, sizes.k)) {
    return Support::no(fmt::format("'{}' has {} packed bytes, this machine's engine {} packs to {}", w.name,
                                   w.packed_bytes, name_of(best_engine(w.dtype)),
                                   packed_bytes(w.dtype, sizes.experts, sizes.n, sizes.k)));
  }
  return Support::yes();
}

std::string_view packing_engine(const ir::Listing& listing, const ir::Op& op) {
  return name_of(best_engine(listing.value(op.updates[0]).dtype));
}

int64_t one_group_scratch(const ir::Listing& listing, const ir::Op& op, const ir::RowCounts& counts) {
  const ir::Value& weight = listing.value(op.updates.empty() ? op.in[1] : op.updates[0]);
  ProductSizes sizes = product_sizes(listing, op.in[0], weight, counts);
  sizes.rows = std::max(sizes.rows, op.attributes.integer_or(kRowsInAll, 0));  // of a product by pieces
  return product_scratch_bytes(sizes);
}

}  // namespace

std::vector<KernelEntry> linear_kernels() {
  return {
      {"linear", "host", "gemm", linear_supports, one_group_scratch, run_linear, product_engine},
      {"detached_linear", "host", "gemm", linear_supports, one_group_scratch, run_linear, product_engine},
      {"linear_dgrad", "host", "gemm", linear_supports, one_group_scratch, run_linear_dgrad, product_engine},
      {"linear_wgrad", "host", "gemm", linear_wgrad_supports, one_group_scratch, run_linear_wgrad, product_engine},
      {"pack_weight", "host", "gemm", pack_weight_supports, nullptr, run_pack_weight, packing_engine}};
}

}  // namespace heddle::kernels::host
