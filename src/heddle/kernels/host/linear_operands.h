// How the linear ops of the program become calls of gemm.h: their operands, what is refused and why, their scratch.
#pragma once

#include <string>
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

/// Whether a product takes a row operand and a weight of these values; a null weight is not looked at.
Support product_support(const ir::Listing& listing, ir::ValueId rows, ir::ValueId weight, ir::ValueId result);

/// The engine of an op whose first two operands are multiplied.
std::string_view product_engine(const ir::Listing& listing, const ir::Op& op);

/// E, N and K of a weight [N,K] or [E,N,K].
struct WeightSizes {
  int64_t experts = 1, n = 0, k = 0;
};
WeightSizes weight_sizes(const ir::Value& weight);

/// Scratch for every processor, so that the team of the thread that plans and of the one that runs may differ.
int64_t product_scratch_bytes(int64_t experts);
Scratch product_scratch(const device::KernelCall& call, int64_t experts);

std::vector<KernelEntry> linear_kernels();
std::vector<KernelEntry> grouped_linear_kernels();

}  // namespace heddle::kernels::host
