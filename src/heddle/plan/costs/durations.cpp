#include "heddle/plan/costs/durations.h"

#include <algorithm>

#include "heddle/ops/ops.h"

namespace heddle::plan {

namespace {

constexpr double kLaunchUs = 2, kHostLaunchUs = 5;

// Bytes that an op updates on the host; they cross the link both ways at once.
double host_bytes(const ir::Listing& listing, const ir::Op& op) {
  double bytes = 0;
  for (const ir::ValueId id : op.updates) {
    if (listing.value(id).space == ir::Space::host)
      bytes += static_cast<double>(listing.bytes(id, ir::FixedRows()));
  }
  return bytes;
}

// The time of a product over groups, relative to a grouped one.
double over_grouped(const cost::WayRates& ways, const ir::Listing& listing, const ir::Op& op, double flops) {
  if (!op.attributes.has("way")) return 1;
  const auto groups = static_cast<double>(listing.value(op.operand("offsets")).shape[0].count - 1);
  return ways.over_grouped(op.kind(), from_word<ProductWay>(op.attributes.word("way")), flops / groups);
}

}  // namespace

int64_t balanced_rows(const ir::Listing& listing) {
  for (const ir::Op& op : listing.ops) {
    if (op.def->moves == ir::Moves::counts) return ops::even_rows(listing, op);
  }
  return 0;
}

namespace {

// The rows of balanced experts, which have no second round. They are looked for in the listing only where an op's
// cost asks: most ops' don't, and every op of a listing is priced.
class BalancedRows : public ir::RowCounts {
 public:
  explicit BalancedRows(const ir::Listing& listing) : listing_(listing) {}
  int64_t rows(ir::ValueId counts) const override {
    if (rows_ < 0) {
      rows_ = balanced_rows(listing_);
      seldom_ = ops::counted_in_second_round(listing_);
    }
    return seldom_.contains(counts) ? 0 : rows_;
  }

 private:
  const ir::Listing& listing_;
  mutable int64_t rows_ = -1;
  mutable std::set<ir::ValueId> seldom_;
};

}  // namespace

passes::Durations nominal_durations(const model::Dispatcher& links, const DeviceRates& rates) {
  return [links, rates](const ir::Listing& listing, const ir::Op& op) {
    if (!ir::runs(*op.def)) return 0.0;
    const ir::Cost cost = op.def->cost(listing, op, BalancedRows(listing));
    double messages_us = 0;
    if (ir::communicates(*op.def) && rates.message_bytes_per_us > 0) {
      messages_us = cost.message_bytes / rates.message_bytes_per_us + rates.message_latency_us;
    } else if (ir::communicates(*op.def)) {
      const bool far = op.group == "experts" || op.group == "pp";
      messages_us = cost.message_bytes / (far ? links.across_bytes_per_us() : links.within_bytes_per_us()) +
                    (far ? links.across_latency_us : links.within_latency_us);
    }
    if (op.def->stream == ir::StreamKind::comm) return messages_us;
    if (ir::is_copy(op.def->moves))
      return kLaunchUs + cost.bytes / 2 / rates.host_bytes_per_us;  // read here, written there
    if (ir::runs_on_host(op)) return kHostLaunchUs + cost.bytes / rates.processor_bytes_per_us;
    const double bytes_us =
        std::max(cost.bytes / rates.bytes_per_us, host_bytes(listing, op) / rates.host_bytes_per_us);
    const double products_us =
        cost.flops / rates.flops_per_us * over_grouped(rates.ways.rates, listing, op, cost.flops);
    // An op that communicates while it computes has a piece that overlaps with no message, and launches each piece.
    const auto pieces = static_cast<double>(ir::pieces_of(op));
    const double works_us = pieces * kLaunchUs + std::max(products_us, bytes_us);
    const double alone_us = pieces > 1 ? works_us / pieces : 0;
    return std::max(messages_us + alone_us, works_us);
  };
}

double units_taken(const ir::Op& op, const DeviceRates& rates) {
  const bool moves = op.def->stream == ir::StreamKind::comm && ir::communicates(*op.def) &&
                     op.def->moves != ir::Moves::from_neighbour;
  return moves ? rates.message_share : 0;
}

bool computes_on_units(const ir::Op& op) {
  return op.def->stream == ir::StreamKind::compute && !ir::runs_on_host(op);
}

}  // namespace heddle::plan
