#include "heddle/observe/charts/schedule_timeline.h"

#include <fmt/format.h>

#include "heddle/schedule/text.h"

namespace heddle::observe {

namespace {

SpanPhase phase_of(schedule::Kind kind) {
  switch (kind) {
    case schedule::Kind::F: return SpanPhase::F;
    case schedule::Kind::I: return SpanPhase::I;
    case schedule::Kind::W: return SpanPhase::W;
    case schedule::Kind::B: return SpanPhase::both;
  }
  return SpanPhase::other;
}

}  // namespace

Timeline schedule_timeline(const schedule::Schedule& schedule, const schedule::Timing& timing, double unit_us) {
  Timeline timeline;
  const schedule::ActionNames names(schedule.placement);
  for (size_t r = 0; r < schedule.order.size(); ++r) {
    const uint32_t track = timeline.track(static_cast<int32_t>(r), "");
    for (size_t a = 0; a < schedule.order[r].size(); ++a) {
      const schedule::Action& action = schedule.order[r][a];
      const schedule::Interval& at = timing.of[r][a];
      if (at.end <= at.start) continue;
      const auto add = [&](const schedule::Compute& c, SpanHalf half) {
        Span& span = timeline.spans.emplace_back();
        span.name = timeline.intern(fmt::format("{}{}", schedule::letter_of(c.kind), c.microbatch));
        span.kind = timeline.intern(fmt::format("chunk {}", names.chunk_of(c.stage)));
        span.track = track;
        span.start_us = at.start * unit_us;
        span.end_us = at.end * unit_us;
        span.phase = phase_of(c.kind);
        span.half = half;
        span.stage = c.stage % schedule.placement.stages;
        span.microbatch = c.microbatch;
      };
      add(action.first, action.with ? SpanHalf::upper : SpanHalf::whole);
      if (action.with) add(*action.with, SpanHalf::lower);
    }
  }
  return timeline;
}

}  // namespace heddle::observe
