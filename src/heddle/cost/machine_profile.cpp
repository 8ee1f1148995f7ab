#include "heddle/cost/machine_profile.h"

#include <algorithm>

namespace heddle::cost {

double MachineProfile::flops_per_s(Dtype dtype) const {
  return dtype == Dtype::bf16 ? bf16_flops_per_s : dtype == Dtype::f64 ? f64_flops_per_s : f32_flops_per_s;
}

Dtype product_dtype(const ir::Stage& stage, const ir::Op& op) {
  for (const ir::ValueId id : op.in) {
    if (id == ir::none) continue;
    const Dtype dtype = stage.value(id).dtype;
    if (dtype == Dtype::bf16 || dtype == Dtype::f32 || dtype == Dtype::f64) return dtype;
  }
  return Dtype::f32;
}

double roofline_us(const MachineProfile& profile, const ir::Cost& cost, Dtype dtype) {
  const double rate = profile.flops_per_s(dtype);
  HEDDLE_CHECK(cost.flops == 0 || rate > 0, "the machine profile has no matrix rate for {}", name_of(dtype));
  HEDDLE_CHECK(cost.bytes == 0 || profile.copy_bytes_per_s > 0, "the machine profile has no copy bandwidth");
  const double products_s = cost.flops == 0 ? 0 : cost.flops / rate;
  const double traffic_s = cost.bytes == 0 ? 0 : cost.bytes / profile.copy_bytes_per_s;
  return 1e6 * std::max(products_s, traffic_s);
}

double op_us(const MachineProfile& profile, const ir::Stage& stage, const ir::Op& op, const ir::RowCounts& rows) {
  HEDDLE_CHECK(op.def->cost != nullptr, "op '{}' has no cost", op.kind());
  const ir::Cost cost = op.def->cost(stage, op, rows);
  double us = profile.launch_us + roofline_us(profile, cost, product_dtype(stage, op));
  if (op.def->stream == ir::StreamKind::compute) us += profile.fork_us;
  if (op.def->stream == ir::StreamKind::comm) {
    // Through shared memory a message is read once and written once.
    const double message_s = profile.link_bytes_per_s > 0   ? cost.message_bytes / profile.link_bytes_per_s
                             : profile.copy_bytes_per_s > 0 ? 2 * cost.message_bytes / profile.copy_bytes_per_s
                                                            : 0;
    us += profile.message_us + 1e6 * message_s;
  }
  return us;
}

}  // namespace heddle::cost
