// The explanation of a plan, as text for a terminal and as one HTML file that needs nothing else.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "heddle/observe/terminal/terminal.h"
#include "heddle/search/explain.h"

namespace heddle::observe {

/// Waterfall, what binds, sensitivities, memory, remedies and neighbours, as aligned tables.
std::string plan_text(const search::Explanation& plan, const Terminal& terminal);

/// A launch as text for a target that can run it.
using LaunchText = std::function<std::string(const search::Launch& launch, std::string_view target)>;

/// The same with the pipeline and memory over time; the best plan first.
std::string plan_page(const std::vector<search::Explanation>& plans, const LaunchText& launch_text);

}  // namespace heddle::observe
