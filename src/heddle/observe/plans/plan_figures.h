// The figures of a plan as text, each rounded in one place: the table of a search, the explanation in a terminal
// and the page say the same words.
#pragma once

#include <string>
#include <vector>

#include "heddle/search/explain.h"

namespace heddle::observe {

std::string percent_text(double part);  // "12.3 %"
std::string change_text(double ratio);  // "+2.1 %"; "0.0 %" where nothing changes
std::string device_rate_text(double tokens_per_s);

struct PlanFigures {
  std::string step, tokens_per_s_per_device, utilization, peak, exposed, bubble;
};
/// `scale`: measured over estimated.
PlanFigures figures_of(const search::Job& job, const search::Exact& step, double scale);

struct PlanFiguresInFull : PlanFigures {
  std::string low, high;  // range of the step for nine of ten
  std::string memory;     // usable by a plan
};
PlanFiguresInFull figures_of(const search::Explanation& plan);

/// A table of an explanation: the rows as a terminal and a page show them.
struct PlanTable {
  std::string title;
  std::vector<std::string> columns;  // the first is of words, so is the last where `ends_in_words`
  bool ends_in_words = false;
  std::vector<std::vector<std::string>> rows;
};
PlanTable step_table(const search::Explanation& plan);
PlanTable sensitivity_table(const search::Explanation& plan);
PlanTable memory_table(const search::Explanation& plan);
PlanTable remedy_table(const search::Explanation& plan, size_t most);
PlanTable neighbour_table(const search::Explanation& plan, size_t most);

/// The figures of plans as JSON, numbers as they are, the best plan first: for scripts that read a page.
std::string json_of(const std::vector<search::Explanation>& plans);

}  // namespace heddle::observe
