// What a machine can do, in the few numbers that the time of an op follows from: products run at the matrix rate of
// their type, everything else at the bandwidth of a copy, and each op costs a launch.
#pragma once

#include "heddle/base/dtype.h"
#include "heddle/ir/stage.h"

namespace heddle::cost {

struct MachineProfile {
  double bf16_flops_per_s = 0;  // matrix products, the whole device
  double f32_flops_per_s = 0;
  double f64_flops_per_s = 0;
  double copy_bytes_per_s = 0;  // read and written bytes together
  double launch_us = 0;         // of any op: from the end of the one before it to its start
  double fork_us = 0;           // of an op on the compute stream: its threads start and meet again
  double link_bytes_per_s = 0;  // sent by one rank; 0: the ranks share memory, a message is a copy
  double message_us = 0;        // of an op that communicates: until the first byte is there

  /// The matrix rate for operands of this type.
  double flops_per_s(Dtype dtype) const;
};

/// The type in which an op multiplies: that of its first operand that is no index.
Dtype product_dtype(const ir::Stage& stage, const ir::Op& op);

/// max(FLOPs ÷ matrix rate, bytes ÷ copy bandwidth) of a cost, in microseconds, without launch and messages.
double roofline_us(const MachineProfile& profile, const ir::Cost& cost, Dtype dtype);

/// Time of an op alone on the machine, in microseconds. InternalError when the profile lacks a rate that it needs.
double op_us(const MachineProfile& profile, const ir::Stage& stage, const ir::Op& op, const ir::RowCounts& rows);

}  // namespace heddle::cost
