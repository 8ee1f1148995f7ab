// The figures of a run: each worked out once, from the run's steps, and written in one way. The terminal, `--json`
// and the report take them here, so that one value never has two forms.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "heddle/observe/step_metrics.h"

namespace heddle::observe {

struct RunFigures : Figures {
  int64_t step = 0;  // the last one; 0: there is none
};

/// Returns the figures of the steps alone, as OverSteps says of each row. Those that only the run knows stay empty.
RunFigures figures_of(const std::vector<StepMetrics>& steps);

/// Returns how many steps at the end of so many are recent ones (OverSteps::recent).
size_t recent_steps(size_t steps);

/// Facts of a group's rows, or of those without a group (null): names and values, and in one line.
std::vector<std::pair<std::string, std::string>> facts_of(const Figures& figures, const FigureGroup* group);
std::string line_of(const Figures& figures, const FigureGroup* group);

/// Figures that the JSON has. With `present`, only those that are set; a number that is not finite is a string.
/// With `all`, also those that steps could have set but did not, as 0, or null for a loss. A number that is not
/// finite is then null.
enum class JsonOf : uint8_t { present, all };

/// The figures as JSON, numbers as they are: for scripts that read a page, and for `--json`.
std::string json_of(const RunFigures& figures, JsonOf what = JsonOf::present);

}  // namespace heddle::observe
