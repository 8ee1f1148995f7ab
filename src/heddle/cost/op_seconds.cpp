#include "heddle/cost/op_seconds.h"

#include <algorithm>

#include "heddle/cost/device_time.h"
#include "heddle/cost/op_times.h"
#include "heddle/cost/product_ways.h"

namespace heddle::cost {

double op_s(const Accelerator& device, Precision precision, const ir::Listing& listing, const ir::Op& op,
            const ir::RowCounts& rows) {
  const OpShape s = shape_of(listing, op, rows);
  const double moving = s.bytes > 0 ? traffic_s(device, s.bytes) : 0;
  if (s.flops <= 0) return moving;
  if (op.def->work == ir::Work::attention && op.attributes.has("head_dim")) {
    const auto of = [&](const char* name) { return static_cast<double>(op.attributes.integer(name)); };
    return std::max(moving, attention_s(device, s.flops, of("sequence"), of("head_dim")));
  }
  // A product of the first operand with as many columns as its FLOPs say; what does several in one is a wider one.
  // The inner length of a weight gradient is its rows.
  const double rows_each = std::max(1.0, s.rows / s.groups), columns = s.flops / (2 * rows_each * s.groups * s.in);
  const bool weights = op.phase == ir::Phase::W;
  // In turn, each group has the device to itself, and tiles of its own to fill it with.
  const bool alone = s.kind == measured_kind(op.kind(), ProductWay::serial);
  const double times = alone ? s.groups : 1;
  return std::max(moving, times * product_s(device, precision, weights ? s.in : rows_each, columns,
                                            weights ? rows_each : s.in, s.groups / times));
}

}  // namespace heddle::cost
