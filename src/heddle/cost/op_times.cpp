#include "heddle/cost/op_times.h"

#include <algorithm>
#include <cmath>

#include "heddle/cost/machine_profile.h"
#include "heddle/cost/product_ways.h"

namespace heddle::cost {

namespace {

// First operand that has a shape of its own, in reads, then writes.
ir::ValueId first_of(const ir::Op& op) {
  for (const std::vector<ir::ValueId>* ids : {&op.in, &op.out, &op.updates}) {
    for (const ir::ValueId id : *ids) {
      if (id != ir::none) return id;
    }
  }
  return ir::none;
}

double columns_of(const ir::Listing& listing, ir::ValueId id) {
  const ir::Shape& shape = listing.value(id).shape;
  return shape.empty() ? 1 : static_cast<double>(std::max<int64_t>(1, shape.back().count));
}

constexpr size_t kNeighbours = 8;
constexpr double kBlur = 0.02;  // squared distance below which neighbours count alike
constexpr double kSame = 1e-9;  // squared distance of what is the same op

}  // namespace

OpShape shape_of(const ir::Listing& listing, const ir::Op& op, const ir::RowCounts& rows, bool overwrite) {
  OpShape shape;
  shape.kind = op.kind();
  if (op.attributes.has("way"))
    shape.kind = measured_kind(op.kind(), from_word<ProductWay>(op.attributes.word("way")));
  shape.dtype = product_dtype(listing, op);
  const ir::Cost cost = op.def->cost(listing, op, rows);
  shape.flops = cost.flops;
  shape.bytes = cost.bytes;
  if (overwrite) {  // written, not read
    for (const ir::ValueId id : op.updates) shape.bytes -= static_cast<double>(listing.bytes(id, rows));
  }
  shape.bytes = std::max(0.0, shape.bytes);
  if (const ir::ValueId id = first_of(op); id != ir::none) {
    shape.in = columns_of(listing, id);
    shape.rows = static_cast<double>(listing.elements(id, rows)) / shape.in;
  }
  if (op.def->by_pieces) {  // timed as the product that it runs, on all rows: what is gathered or what is summed
    shape.kind = op.attributes.word("product");
    const ir::ValueId made = op.out[0];
    shape.rows =
        std::max(shape.rows, static_cast<double>(listing.elements(made, rows)) / columns_of(listing, made));
  }
  const std::vector<ir::ValueId>& written = op.out.empty() ? op.updates : op.out;
  if (!written.empty() && written[0] != ir::none) shape.out = columns_of(listing, written[0]);
  for (const std::vector<ir::ValueId>* ids : {&op.in, &op.updates}) {
    for (const ir::ValueId id : *ids) {
      if (id != ir::none && listing.value(id).shape.size() == 3 && cost.flops > 0) {
        shape.groups = std::max(shape.groups, static_cast<double>(listing.value(id).shape[0].count));
      }
    }
  }
  return shape;
}

OpTimes::Features OpTimes::features(const OpShape& s, double resident_bytes) {
  const auto log = [](double x) { return std::log2(std::max(1.0, x)); };
  return {log(s.rows),
          log(s.in),
          log(s.out),
          log(s.groups),
          log(s.flops > 0 ? s.flops : s.bytes),
          0.5 * log(resident_bytes)};
}

double OpTimes::reference_us(const Kind& kind, const OpShape& shape) {
  double us = kind.least_us;
  if (kind.flops_per_us > 0) us += shape.flops / kind.flops_per_us;
  if (kind.bytes_per_us > 0) us += shape.bytes / kind.bytes_per_us;
  return us;
}

void OpTimes::add(OpTime time) {
  HEDDLE_CHECK(time.us > 0, "'{}' took {} us", time.shape.kind, time.us);
  Kind& kind = kinds_[key_of(time.shape, time.threads)];
  kind.flops_per_us = std::max(kind.flops_per_us, time.shape.flops / time.us);
  kind.bytes_per_us = std::max(kind.bytes_per_us, time.shape.bytes / time.us);
  kind.least_us = kind.samples.empty() ? time.us : std::min(kind.least_us, time.us);
  kind.samples.emplace_back(times_.size(), features(time.shape, time.resident_bytes));
  times_.push_back(std::move(time));
}

bool OpTimes::knows(const OpShape& shape, int threads) const { return kinds_.contains(key_of(shape, threads)); }

double OpTimes::us(const OpShape& shape, int threads, double resident_bytes) const {
  const auto at = kinds_.find(key_of(shape, threads));
  HEDDLE_CHECK(at != kinds_.end(), "'{}' was not measured", shape.kind);
  const Kind& kind = at->second;
  const Features wanted = features(shape, resident_bytes);
  std::vector<std::pair<double, size_t>> near;  // squared distance, sample
  near.reserve(kind.samples.size());
  for (const auto& [i, has] : kind.samples) {
    double distance = 0;
    for (size_t f = 0; f < wanted.size(); ++f) distance += (has[f] - wanted[f]) * (has[f] - wanted[f]);
    near.emplace_back(distance, i);
  }
  size_t count = std::min(kNeighbours, near.size());
  std::partial_sort(near.begin(), near.begin() + static_cast<std::ptrdiff_t>(count), near.end());
  while (near[0].first < kSame && near[count - 1].first >= kSame) --count;  // measured itself
  double sum = 0, weights = 0;
  for (size_t n = 0; n < count; ++n) {
    const OpTime& sample = times_[near[n].second];
    const double weight = 1 / (near[n].first + kBlur);
    sum += weight * std::log(sample.us / reference_us(kind, sample.shape));
    weights += weight;
  }
  return reference_us(kind, shape) * std::exp(sum / weights);
}

}  // namespace heddle::cost
