#include "heddle/cli/run_trace.h"

#include <algorithm>
#include <limits>

namespace heddle::cli {

SpanPhase span_phase_of(ir::Phase phase) {
  switch (phase) {
    case ir::Phase::F: return SpanPhase::F;
    case ir::Phase::I: return SpanPhase::I;
    case ir::Phase::W: return SpanPhase::W;
    case ir::Phase::begin:
    case ir::Phase::end: return SpanPhase::end;
  }
  return SpanPhase::other;
}

StepTrace take_trace(train::Trainer& trainer, int64_t step) {
  StepTrace trace;
  trace.step = step;
  const ir::StepProgram& program = trainer.lowered().program;
  const std::vector<std::string>& names = trainer.executor().walk().streams().names();
  std::vector<std::vector<device::Span>> recorded;
  int64_t start_ns = std::numeric_limits<int64_t>::max();
  for (int i = 0; i < static_cast<int>(names.size()); ++i) {
    recorded.push_back(trainer.executor().stream(i).take_spans());
    for (const device::Span& span : recorded.back()) start_ns = std::min(start_ns, span.start_ns);
  }
  trace.start_ns = start_ns;
  const int rank = trainer.ranks().rank();
  Timeline& timeline = trace.timeline;
  const auto us = [&](int64_t ns) { return static_cast<double>(ns - start_ns) / 1e3; };
  for (size_t i = 0; i < names.size(); ++i) {
    const uint32_t track = timeline.track(rank, names[i]);
    for (const device::Span& from : recorded[i]) {
      const ir::Op& op = program.stages[static_cast<size_t>(from.stage)].ops[from.op_index];
      Span& span = timeline.spans.emplace_back();
      const std::string name = op.layer >= 0 ? fmt::format("{} {}", op.layer, op.kind()) : std::string(op.kind());
      span.name = timeline.intern(name);
      span.kind = timeline.intern(op.kind());
      span.track = track;
      span.start_us = us(from.start_ns);
      span.end_us = us(from.end_ns);
      span.phase = span_phase_of(op.phase);
      span.stage = from.stage;
      span.microbatch = from.microbatch;
      span.layer = op.layer;
      span.step = static_cast<int32_t>(step);
      timeline.arena.push_back({rank, us(from.start_ns), from.live_bytes, from.reserved_bytes});
    }
  }
  auto& arena = timeline.arena;
  std::stable_sort(arena.begin(), arena.end(), [](const auto& a, const auto& b) { return a.at_us < b.at_us; });
  trace.memory.title =
      trainer.ranks().size() > 1 ? fmt::format("rank {}, step {}", rank, step) : fmt::format("step {}", step);
  for (const ArenaSample& sample : arena) {
    if (!trace.memory.at_us.empty() && sample.at_us <= trace.memory.at_us.back()) continue;
    trace.memory.at_us.push_back(sample.at_us);
    trace.memory.live_bytes.push_back(static_cast<double>(sample.live_bytes));
    trace.memory.reserved_bytes.push_back(static_cast<double>(sample.reserved_bytes));
  }
  return trace;
}

StepTrace joined(const std::vector<StepTrace>& ranks) {
  StepTrace all = ranks.at(0);
  for (const StepTrace& rank : ranks) all.start_ns = std::min(all.start_ns, rank.start_ns);
  all.timeline = {};
  const double first_us = static_cast<double>(ranks[0].start_ns - all.start_ns) / 1e3;
  for (double& at : all.memory.at_us) at += first_us;
  for (const StepTrace& rank : ranks) {
    const double later_us = static_cast<double>(rank.start_ns - all.start_ns) / 1e3;
    for (const Span& from : rank.timeline.spans) {
      Span& span = all.timeline.spans.emplace_back(from);
      const Track& track = rank.timeline.tracks[from.track];
      span.name = all.timeline.intern(rank.timeline.name(from.name));
      span.kind = all.timeline.intern(rank.timeline.name(from.kind));
      span.track = all.timeline.track(track.rank, track.stream);
      span.start_us += later_us;
      span.end_us += later_us;
    }
    for (ArenaSample sample : rank.timeline.arena) {
      sample.at_us += later_us;
      all.timeline.arena.push_back(sample);
    }
  }
  return all;
}

}  // namespace heddle::cli
