// Changes of a plan, each by itself: those after which the same trainer has most tokens a second.
#pragma once

#include <functional>
#include <string_view>
#include <vector>

#include "advisor/answer/plan_answer.h"
#include "advisor/script/launch_script.h"
#include "heddle/search/explain.h"

namespace heddle::advisor {

/// At most `most` changes, the fastest first. Each changes one degree, size or switch of the plan, its schedule or
/// the precision of its products, and what must follow from that. They fit and the target can run them. Of a plan
/// that does not fit they are what makes it fit, at the least price. `script`: as in word_changes. `scale`:
/// measured over estimated time of a launch, as the plan's own scale is of the plan.
std::vector<PlanChange> one_changes(const search::Explanation& plan, std::string_view target,
                                    const LaunchScript* script, const std::function<double(const Launch&)>& scale,
                                    size_t most);

}  // namespace heddle::advisor
