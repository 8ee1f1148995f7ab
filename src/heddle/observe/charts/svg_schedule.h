// A schedule as a picture of its own: an SVG file with one lane a rank, time from left to right.
//
// Forwards are blue, input gradients green, weight gradients a light green, whole backwards teal; later chunks of a
// rank are lighter. A fused pair is split: its forward above, its backward below. Wide enough actions bear their
// microbatch. Light and dark schemes come from the file's own style. Actions too narrow to tell apart are joined,
// so the file's size is bounded by its pixels.
#pragma once

#include <string>

#include "heddle/schedule/timing.h"

namespace heddle::observe {

/// `subtitle` stands below the schedule's name; `time_label` names the time axis.
std::string svg_schedule(const schedule::Schedule& schedule, const schedule::Timing& timing,
                         const std::string& subtitle,
                         const std::string& time_label = "time, in the units of F, I and W");

}  // namespace heddle::observe
