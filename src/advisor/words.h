// The engine's words for plans, as the advisor speaks them.
#pragma once

#include "heddle/search/launch.h"
#include "heddle/search/plans/replicas.h"

namespace heddle::advisor {

using search::Behaviour;
using search::Estimate;
using search::GroupName;
using search::Job;
using search::Launch;
using search::LayerOverlap;
using search::Pipeline;
using search::PricedResidency;
using search::Recompute;
using search::Software;
using search::StageKeeping;

using search::interleaved;
using search::interleaved_fused;
using search::one_f_one_b;
using search::replicas_of;
using search::replicas_word;

}  // namespace heddle::advisor
