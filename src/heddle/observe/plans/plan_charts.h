// The pipeline of a plan and the memory of its fullest rank over the step, as figures of a page. They are drawn
// from the very timing and bytes of its step and its peak.
#pragma once

#include <string>

#include "heddle/search/timed_plan.h"

namespace heddle::observe {

/// `scale`: measured over estimated. "" for a plan whose schedule was not run.
std::string pipeline_figure(const search::TimedPlan& plan, double scale);
std::string memory_figure(const search::TimedPlan& plan, double scale, double memory_bytes);

}  // namespace heddle::observe
