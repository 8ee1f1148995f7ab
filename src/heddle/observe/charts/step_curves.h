// Figures of a run's steps as curves of a chart.
#pragma once

#include <string>
#include <vector>

#include "heddle/observe/charts/svg_chart.h"
#include "heddle/observe/step_metrics.h"

namespace heddle::observe {

/// Over the steps that have it.
Series series_of(const std::vector<StepMetrics>& steps, const Figure& row, std::string label, int colour,
                 Mark mark = Mark::line);

/// A noisy curve is drawn faintly with its mean over it, a short one as it is, an empty one not at all.
void add_noisy(std::vector<Series>& into, Series series);

/// Curves whose peaks would flatten everything else go on a logarithmic axis.
AxisScale scale_for(const std::vector<Series>& curves);

/// The charts of a section with the curves that their rows ask for; those without a curve are left out.
std::vector<LineChart> charts_of(const std::vector<StepMetrics>& steps, FigureChart::Section section);

}  // namespace heddle::observe
