#include "heddle/simulate/memory_log.h"

#include <algorithm>
#include <tuple>

namespace heddle::simulate {

MemoryLog::MemoryLog(const ir::StepProgram& program, int rank)
    : program_(program), kinds_(program.listings.size()) {
  for (const int s : program.listings_of(rank)) {
    const ir::Listing& listing = program.listings[s];
    std::vector<MemoryKind>& kinds = kinds_[s] = memory_kinds(listing);
    for (size_t v = 0; v < listing.values.size(); ++v) {
      const ir::Value& value = listing.values[v];
      if (!ir::is_persistent(value.role) || value.shared_with >= 0 || value.part_of != ir::none) continue;
      if (value.space == ir::Space::nowhere) continue;
      persistent_[static_cast<size_t>(value.space)][static_cast<size_t>(kinds[v])] +=
          ir::place_bytes(listing.bytes(static_cast<ir::ValueId>(v), ir::FixedRows()));
    }
  }
}

void MemoryLog::begin_step() {
  events_.clear();
  ops_.clear();
  issued_on_.clear();
}

void MemoryLog::placed(int listing, ir::ValueId id, int microbatch, int64_t bytes) {
  events_.push_back({listing, id, microbatch, bytes});
}

void MemoryLog::released(int listing, ir::ValueId id, int microbatch, int64_t bytes) {
  events_.push_back({listing, id, microbatch, -bytes});
}

void MemoryLog::issued(const ir::Issue& issue) {
  ops_.push_back(
      {issue.listing, issue.op_index, issue.microbatch, issue.stream, issued_on_[issue.stream]++, events_.size()});
}

ir::Space MemoryLog::space_of(const Event& event) const {
  if (event.id == ir::none) return ir::Space::device;
  return program_.listings[event.listing].value(event.id).space;
}

MemoryKind MemoryLog::kind_of(int listing, ir::ValueId id) const {
  return id == ir::none ? MemoryKind::scratch : kinds_[listing][id];
}

MemoryPeak MemoryLog::peak_at(ir::Space space, size_t at) const {
  const Issued& issued = ops_[at];
  const ir::Op& op = program_.listings[issued.listing].ops[issued.op];
  MemoryPeak peak;
  peak.op = op.kind();
  peak.phase = op.phase;
  peak.layer = op.layer;
  peak.microbatch = issued.microbatch;
  std::map<std::tuple<int32_t, ir::ValueId, int32_t>, int64_t> held;
  for (size_t e = 0; e < issued.events; ++e) {
    const Event& event = events_[e];
    if (space_of(event) != space) continue;
    int64_t& bytes = held[{event.listing, event.id, event.microbatch}];
    bytes += event.bytes;
  }
  std::map<int, int64_t> of_microbatch;
  for (const auto& [key, bytes] : held) {
    const auto& [listing, id, microbatch] = key;
    if (bytes == 0) continue;
    if (is_activation(kind_of(listing, id)) && microbatch >= 0) of_microbatch[microbatch] += bytes;
    const bool scratch = id == ir::none;
    const ir::Listing& text = program_.listings[listing];
    peak.values.push_back({scratch ? "scratch of " + peak.op : text.value(id).name,
                           scratch ? ir::Role::activation : text.value(id).role, listing, microbatch, bytes});
  }
  for (const auto& [microbatch, bytes] : of_microbatch) peak.microbatches.push_back({microbatch, bytes});
  std::stable_sort(peak.values.begin(), peak.values.end(),
                   [](const ir::Walk::Live& a, const ir::Walk::Live& b) { return a.bytes > b.bytes; });
  if (peak.values.size() > kPeakValues) peak.values.resize(kPeakValues);
  return peak;
}

MemoryCurve MemoryLog::curve(ir::Space space, const std::vector<double>& at_us, double until_us) const {
  MemoryCurve curve;
  curve.space = space;
  curve.at_us = at_us;
  curve.until_us = until_us;
  BytesOfKinds now = persistent_[static_cast<size_t>(space)];
  curve.persistent_bytes = sum_of(now);
  int64_t live = curve.persistent_bytes, most = -1;
  size_t event = 0, fullest = 0;
  for (size_t i = 0; i < ops_.size(); ++i) {
    for (; event < ops_[i].events; ++event) {
      const Event& e = events_[event];
      if (space_of(e) != space) continue;
      now[static_cast<size_t>(kind_of(e.listing, e.id))] += e.bytes;
      live += e.bytes;
    }
    curve.bytes.push_back(now);
    if (live > most) {
      most = live;
      fullest = i;
    }
  }
  if (ops_.empty()) return curve;
  curve.peak = peak_at(space, fullest);
  curve.peak.at_us = at_us[fullest];
  curve.peak.bytes = most;
  curve.peak.of_kinds = curve.bytes[fullest];
  return curve;
}

std::vector<MemoryCurve> MemoryLog::curves(const std::function<double(const Issued&)>& starts_us,
                                           double until_us) const {
  std::vector<double> at_us;
  double now = 0;
  for (const Issued& op : ops_) {
    if (op.stream == ir::StreamTable::compute) now = std::max(now, starts_us(op));
    at_us.push_back(now);
  }
  std::vector<MemoryCurve> all;
  for (int i = 0; i < ir::kSpaces; ++i) {
    MemoryCurve one = curve(static_cast<ir::Space>(i), at_us, until_us);
    if (one.peak.bytes > 0) all.push_back(std::move(one));
  }
  return all;
}

MemoryCurve thinned(const MemoryCurve& curve, size_t places) {
  if (curve.at_us.size() <= places) return curve;
  MemoryCurve thin = curve;
  thin.at_us.clear();
  thin.bytes.clear();
  const double first = curve.at_us.front(), length = std::max(curve.at_us.back() - first, 1e-9);
  const auto part_of = [&](size_t i) {
    return std::min(static_cast<size_t>((curve.at_us[i] - first) / length * static_cast<double>(places)),
                    places - 1);
  };
  for (size_t begin = 0, end = 0; begin < curve.at_us.size(); begin = end) {
    size_t most = begin;
    for (end = begin; end < curve.at_us.size() && part_of(end) == part_of(begin); ++end) {
      if (sum_of(curve.bytes[end]) > sum_of(curve.bytes[most])) most = end;
    }
    thin.at_us.push_back(curve.at_us[most]);
    thin.bytes.push_back(curve.bytes[most]);
  }
  return thin;
}

}  // namespace heddle::simulate
