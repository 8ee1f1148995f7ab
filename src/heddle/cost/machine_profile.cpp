#include "heddle/cost/machine_profile.h"

#include <algorithm>
#include <cmath>

namespace heddle::cost {

std::string_view name_of(Link link) {
  switch (link) {
    case Link::threads: return "threads";
    case Link::node: return "node";
    case Link::nodes: return "nodes";
  }
  return "";
}

double MachineProfile::speed(double threads) const {
  if (cores == 0 || threads <= 1) return 1;
  const auto known = static_cast<double>(together.size());
  if (threads <= known) {  // between whole numbers linearly
    const auto below = static_cast<size_t>(threads);
    const double at = together[below - 1];
    return below >= together.size() ? at : at + (threads - static_cast<double>(below)) * (together[below] - at);
  }
  return (together.empty() ? 1 : together.back()) * std::min(1.0, cores / threads);
}

double MachineProfile::flops_per_s(Dtype dtype) const {
  return dtype == Dtype::bf16 ? bf16_flops_per_s : dtype == Dtype::f64 ? f64_flops_per_s : f32_flops_per_s;
}

Dtype product_dtype(const ir::Listing& listing, const ir::Op& op) {
  for (const auto* ids : {&op.in, &op.out}) {  // of products in eight bits the result has it
    for (const ir::ValueId id : *ids) {
      if (id == ir::none) continue;
      const Dtype dtype = listing.value(id).dtype;
      if (dtype == Dtype::bf16 || dtype == Dtype::f32 || dtype == Dtype::f64) return dtype;
    }
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

double op_us(const MachineProfile& profile, const ir::Listing& listing, const ir::Op& op,
             const ir::RowCounts& rows) {
  const ir::Cost cost = op.def->cost(listing, op, rows);
  double us = profile.launch_us + roofline_us(profile, cost, product_dtype(listing, op));
  if (op.def->stream == ir::StreamKind::compute) us += profile.fork_us;
  if (ir::communicates(*op.def)) {
    // Through shared memory a message is read once and written once.
    const double message_s = profile.link_bytes_per_s > 0   ? cost.message_bytes / profile.link_bytes_per_s
                             : profile.copy_bytes_per_s > 0 ? 2 * cost.message_bytes / profile.copy_bytes_per_s
                                                            : 0;
    us += profile.message_us + 1e6 * message_s;
  }
  return us;
}

double measured_us(const MachineProfile& profile, const ir::Listing& listing, const ir::Op& op,
                   const ir::RowCounts& rows, bool overwrite, int threads, double resident_bytes) {
  OpShape shape = shape_of(listing, op, rows, overwrite);
  for (const std::string& kind : {shape.kind, std::string(op.kind())}) {  // as the op's other ways, if it must be
    shape.kind = kind;
    if (profile.ops.knows(shape, threads)) return profile.ops.us(shape, threads, resident_bytes);
  }
  ir::Cost cost{.flops = shape.flops, .bytes = shape.bytes};
  if (profile.flops_per_s(shape.dtype) <= 0) {  // a type that was not measured: as bytes
    cost.bytes += cost.flops / 10;
    cost.flops = 0;
  }
  const double share = static_cast<double>(threads) / std::max(threads, profile.cores);
  return roofline_us(profile, cost, shape.dtype) / share;
}

namespace {
// Measured times of a link, for the group size nearest in ratio, by bytes.
std::vector<const LinkTime*> known_times(const MachineProfile& profile, Link over, int ranks) {
  double nearest = 1e9;
  for (const LinkTime& t : profile.links) {
    if (t.over == over) nearest = std::min(nearest, std::abs(std::log2(static_cast<double>(t.ranks) / ranks)));
  }
  std::vector<const LinkTime*> known;
  for (const LinkTime& t : profile.links) {
    if (t.over == over && std::abs(std::log2(static_cast<double>(t.ranks) / ranks)) <= nearest + 1e-9)
      known.push_back(&t);
  }
  std::sort(known.begin(), known.end(), [](const auto* a, const auto* b) { return a->bytes < b->bytes; });
  return known;
}
}  // namespace

double link_bytes_per_us(const MachineProfile& profile, Link over, int ranks) {
  const std::vector<const LinkTime*> known = known_times(profile, over, ranks);
  if (known.empty()) return 0;
  const LinkTime& b = *known.back();
  if (known.size() == 1) return b.bytes / b.us;
  const LinkTime& a = *known[known.size() - 2];
  return std::max(b.bytes / b.us, (b.bytes - a.bytes) / std::max(1e-3, b.us - a.us));
}

double message_us(const MachineProfile& profile, Link over, int ranks, double bytes) {
  // A group larger than any that was measured is timed by its bytes.
  const std::vector<const LinkTime*> known = known_times(profile, over, ranks);
  if (known.empty()) return 0;
  if (bytes <= known.front()->bytes || known.size() == 1) {
    return known.front()->us * (known.size() == 1 ? std::max(1.0, bytes / known.front()->bytes) : 1);
  }
  size_t i = 1;
  while (i + 1 < known.size() && known[i]->bytes < bytes) ++i;
  const LinkTime &a = *known[i - 1], &b = *known[i];
  return std::max(0.0, a.us + (bytes - a.bytes) * (b.us - a.us) / std::max(1.0, b.bytes - a.bytes));
}

}  // namespace heddle::cost
