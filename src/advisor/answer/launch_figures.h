// Figures of an explained launch as a plan's answer has them.
#pragma once

#include "advisor/answer/plan_answer.h"
#include "heddle/search/explain.h"

namespace heddle::advisor {

/// Puts sizes, times, bytes by rank and what binds the plan into the answer. Changes and words are the caller's.
void put_figures(const search::Explanation& plan, PlanAnswer& into);

/// "none", "full", "a mixture", with "+offload".
std::string keeping_of(const search::Launch& launch);

}  // namespace heddle::advisor
