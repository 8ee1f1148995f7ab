// A pipeline's schedule as a timeline: a lane a rank, a span an action, a fused pair as two halves of its lane.
#pragma once

#include "heddle/observe/timeline.h"
#include "heddle/schedule/timing.h"

namespace heddle::observe {

/// `unit_us`: microseconds of one unit of the timing. Spans are called by their letter and microbatch, and their
/// kind is the chunk of their rank.
Timeline schedule_timeline(const schedule::Schedule& schedule, const schedule::Timing& timing, double unit_us);

}  // namespace heddle::observe
