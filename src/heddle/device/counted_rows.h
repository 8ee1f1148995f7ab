// Rows of experts as they have been counted, where the host has made room for the most that may come
// (ir::OpDef::room) and walks on without the counts. A stream whose memory the host reads asks here before it runs
// a kernel, so that kernels work on the rows that there are.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "heddle/device/kernel_call.h"
#include "heddle/ir/listing.h"

namespace heddle::device {

/// The rows of one microbatch. Whoever reads a number runs after the op that has counted it.
class CountedRows {
 public:
  explicit CountedRows(const ir::Listing& listing);

  /// True if an op counts such rows, or works on them.
  bool concerns(const ir::Op& op) const;
  /// Gives views of an op, in the order in, out, updates, the rows that there are; returns the most of an operand.
  int64_t fit(const ir::Op& op, std::span<TensorView> views) const;
  /// Notes what an op has counted that has just run: of its results only the first, the rows received, counts any.
  void note(const ir::Op& op, std::span<const TensorView> out);

 private:
  const int64_t* rows_of(ir::ValueId id) const;
  const ir::Listing& listing_;
  std::vector<std::pair<ir::ValueId, int64_t>> rows_;
};

}  // namespace heddle::device
