// The explanation of a plan, as text for a terminal and as one HTML file that needs nothing else.
#pragma once

#include <string>
#include <vector>

#include "heddle/search/explain.h"

namespace heddle::observe {

/// Waterfall, what binds, sensitivities, memory, remedies and neighbours, as aligned tables.
std::string plan_text(const search::Explanation& plan, bool unicode);

/// The same with the pipeline's picture and memory over time; the best plan first, others below it in short.
std::string plan_page(const std::vector<search::Explanation>& plans);

}  // namespace heddle::observe
