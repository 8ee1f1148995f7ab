#include "heddle/simulate/memory_log.h"

#include <algorithm>

#include "heddle/simulate/curve_builder.h"

namespace heddle::simulate {

MemoryLog::MemoryLog(const ir::StepProgram& program, int rank) : program_(program), rank_(rank) {}

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

std::vector<MemoryCurve> MemoryLog::curves(const std::function<double(const Issued&)>& starts_us,
                                           double until_us) const {
  CurveBuilder builder(program_, rank_);
  double now = 0;
  size_t event = 0;
  for (const Issued& op : ops_) {
    for (; event < op.events; ++event) {
      const Event& e = events_[event];
      builder.changes(e.listing, e.id, e.microbatch, e.bytes);
    }
    if (op.stream == ir::StreamTable::compute) now = std::max(now, starts_us(op));
    builder.begins(op.listing, op.op, op.microbatch, now);
  }
  return builder.curves(until_us);
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
