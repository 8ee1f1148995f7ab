// A joined form (ops/update/joined) run by the kernel of its single form, on one parameter after the other.
#pragma once

#include <algorithm>

#include "heddle/kernels/registry.h"
#include "heddle/ops/update/joined.h"

namespace heddle::kernels {

template <device::Kernel single>
void one_by_one(const device::KernelCall& call) {
  const size_t parts = ops::parts_of(*call.op), shared = ops::shared_operands(*call.op->def);
  const size_t out = call.out.size() / parts, updates = call.updates.size() / parts;
  std::vector<device::TensorView> in(call.in.begin(), call.in.begin() + static_cast<std::ptrdiff_t>(shared + 1));
  for (size_t i = 0; i < parts; ++i) {
    in.back() = call.in[shared + i];
    device::KernelCall one = call;
    one.in = in;
    one.out = call.out.subspan(i * out, out);
    one.updates = call.updates.subspan(i * updates, updates);
    single(one);
  }
}

/// Says if the kernel of the single form takes each part.
template <Support (*single)(const ir::Listing&, const ir::Op&)>
Support takes_each(const ir::Listing& listing, const ir::Op& op) {
  for (size_t i = 0; i < ops::parts_of(op); ++i) {
    if (const Support part = single(listing, ops::part_of(op, i)); !part) return part;
  }
  return Support::yes();
}

/// The most that a part wants.
template <int64_t (*single)(const ir::Listing&, const ir::Op&, const ir::RowCounts&)>
int64_t most_scratch(const ir::Listing& listing, const ir::Op& op, const ir::RowCounts& rows) {
  int64_t most = 0;
  for (size_t i = 0; i < ops::parts_of(op); ++i) most = std::max(most, single(listing, ops::part_of(op, i), rows));
  return most;
}

}  // namespace heddle::kernels
