// Turns the linear ops of the program into calls of gemm.h: their operands, what is refused and why, their scratch.
#pragma once

#include <vector>

#include "heddle/kernels/host/gemm/gemm.h"
#include "heddle/kernels/registry.h"

namespace heddle::kernels::host {

/// Operand i of a list, or none or null where it is absent.
inline ir::ValueId operand(const std::vector<ir::ValueId>& ids, size_t i) {
  return i < ids.size() ? ids[i] : ir::none;
}
inline device::TensorView operand(std::span<const device::TensorView> views, size_t i) {
  return i < views.size() ? views[i] : device::TensorView{};
}

inline Rows rows_of(const device::TensorView& view) { return {view.data, view.dtype}; }
inline OutRows out_rows_of(const device::TensorView& view) { return {view.data, view.dtype}; }
inline Weights weights_of(const device::TensorView& view) {
  return {view.data, view.dtype, view.layout == ir::Layout::packed};
}

/// The offsets of a call, checked: they run from 0 to `rows`.
RowGroups groups_of(const device::TensorView& offsets, int64_t rows);

/// Says if a product takes a row operand and a weight of these values; a null weight is not looked at.
Support product_support(const ir::Listing& listing, ir::ValueId rows, ir::ValueId weight, ir::ValueId result);

/// The engine of an op whose first two operands are multiplied.
std::string_view product_engine(const ir::Listing& listing, const ir::Op& op);

/// E, N and K of a weight [N,K] or [E,N,K].
struct WeightSizes {
  int64_t experts = 1, n = 0, k = 0;
};
WeightSizes weight_sizes(const ir::Value& weight);

/// Scratch of a product for every processor, so that the team of the thread that plans and of the one that runs may
/// differ.
int64_t product_scratch_bytes(const ProductSizes& sizes);
/// The sizes of a product whose operands are rows and a weight, or the gradient of one; in a text and in a call.
ProductSizes product_sizes(const ir::Listing& listing, ir::ValueId rows, const ir::Value& weight,
                           const ir::RowCounts& counts, int64_t groups = 1);
ProductSizes product_sizes(const device::TensorView& rows, const device::TensorView& weight, int64_t groups = 1);

std::vector<KernelEntry> linear_kernels();
std::vector<KernelEntry> grouped_linear_kernels();

}  // namespace heddle::kernels::host
