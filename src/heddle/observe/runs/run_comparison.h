// Runs beside each other: their figures, where their settings differ, their curves on common axes.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "heddle/observe/charts/svg_chart.h"
#include "heddle/observe/run_figures.h"
#include "heddle/observe/step_metrics.h"
#include "heddle/observe/table.h"

namespace heddle::observe {

inline constexpr int kMostComparedRuns = kChartColours;  // a colour each

struct ComparedRun {
  std::string name;
  std::vector<StepMetrics> steps;
  RunFigures figures;                                         // those steps'
  std::vector<std::pair<std::string, std::string>> settings;  // key, value
};

/// A setting that not all runs have alike; "" where a run has no such key.
struct DifferingSetting {
  std::string key;
  std::vector<std::string> of_runs;
};
std::vector<DifferingSetting> differing_settings(const std::vector<ComparedRun>& runs);

/// A row for each run.
Table figures_table(const std::vector<ComparedRun>& runs);
/// A row for each setting, a column for each run.
Table settings_table(const std::vector<ComparedRun>& runs);

/// One page that needs nothing else.
std::string comparison_html(const std::vector<ComparedRun>& runs);

}  // namespace heddle::observe
