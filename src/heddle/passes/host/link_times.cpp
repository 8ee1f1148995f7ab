#include "heddle/passes/host/link_times.h"

#include <algorithm>

namespace heddle::passes {

Timeline::Timeline(const ir::Listing& listing, int chunk, const std::vector<ir::Phase>& phases,
                   const Durations& duration_us) {
  for (size_t i = 0; i < listing.ops.size(); ++i) {
    const ir::Op& op = listing.ops[i];
    if (op.chunk != chunk || std::find(phases.begin(), phases.end(), op.phase) == phases.end()) continue;
    ops.push_back(i);
    start_us.push_back(end_us);
    if (op.def->stream == ir::StreamKind::compute) end_us += duration_us(listing, op);
  }
}

size_t Timeline::place_of(size_t op) const {
  return static_cast<size_t>(std::lower_bound(ops.begin(), ops.end(), op) - ops.begin());
}

void place_fetches(std::vector<Fetch>& fetches, const Timeline& block, double room_us, size_t most) {
  std::sort(fetches.begin(), fetches.end(), [](const Fetch& a, const Fetch& b) { return a.use > b.use; });
  double next_us = block.end_us;
  for (size_t k = 0; k < fetches.size(); ++k) {
    Fetch& fetch = fetches[k];
    const size_t used = block.place_of(fetch.use);
    const bool bounded = k + 1 + most < fetches.size() && most < fetches.size();
    const double earliest = bounded ? block.start_of(fetches[k + 1 + most].use) : -room_us;
    double begin = std::min(next_us, block.start_us[used]) - fetch.copy_us;
    fetch.too_late = !fetch.stands && begin < earliest;
    if (fetch.too_late && !fetch.insists) continue;
    if (fetch.too_late) begin = earliest;
    next_us = begin;
    fetch.ahead = begin < 0;
    const auto after = std::upper_bound(block.start_us.begin(), block.start_us.end(), std::max(begin, 0.0));
    const auto place = static_cast<size_t>(after - block.start_us.begin()) - 1;
    fetch.before = block.ops[fetch.ahead ? 0 : std::min(place, used)];
  }
}

}  // namespace heddle::passes
