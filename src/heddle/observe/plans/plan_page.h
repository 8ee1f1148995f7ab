// The explanation of a plan, as text for a terminal and as one HTML file that needs nothing else.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "heddle/observe/terminal/terminal.h"
#include "heddle/search/explain.h"

namespace heddle::observe {

/// Waterfall, what binds, sensitivities, memory, remedies and neighbours, as aligned tables.
std::string plan_text(const search::Explanation& plan, const Terminal& terminal);

/// A launch in the words of a program, or why that can't run it.
struct SaidLaunch {
  std::string target;
  std::string text;
  std::string refusal;  // "" where there is a text
};
using SayLaunch = std::function<std::vector<SaidLaunch>(const search::Launch& launch)>;

/// The explanation as a page, with the pipeline and memory over time; the best plan first.
std::string plan_page(const std::vector<search::Explanation>& plans, const SayLaunch& say_launch);

}  // namespace heddle::observe
