#include "heddle/observe/runs/watched_text.h"

#include <fmt/format.h>

#include "heddle/observe/run_figures.h"
#include "heddle/observe/terminal/text_chart.h"
#include "heddle/observe/units.h"

namespace heddle::observe {

namespace {

std::string chart_of(const std::vector<StepMetrics>& steps, const Figure& row, int columns, bool unicode) {
  TextChart chart{
      .title = std::string(row.watched.title), .columns = columns, .rows = row.watched.rows, .unicode = unicode};
  chart.y_text = [&](double value) { return text_of(row, value); };
  for (const StepMetrics& step : steps) {
    const auto value = step.get(row);
    if (!value) continue;
    chart.x.push_back(static_cast<double>(step.step));
    chart.y.push_back(*value);
  }
  const std::string drawn = text_chart(chart);
  return drawn.empty() ? "" : "\n" + drawn;
}

}  // namespace

std::string watched_text(const std::vector<StepMetrics>& steps, int columns, bool unicode) {
  const RunFigures f = figures_of(steps);
  std::string text;
  if (const auto held_out = f.get(figures::kHeldOutLoss))
    text += fmt::format("held-out loss {} after step {}\n", text_of(figures::kHeldOutLoss, *held_out),
                        grouped_text(static_cast<int64_t>(f.get(figures::kHeldOutStep, 0))));
  for (const auto& [name, value] : facts_of(f, nullptr)) text += fmt::format("{}: {}\n", name, value);
  for (const FigureGroup* group : figures::kGroups)
    if (const std::string line = line_of(f, group); !line.empty())
      text += fmt::format("{}: {}\n", group->title, line);
  for (const Figure* row : figures::kRows)
    if (row->watched.rows > 0) text += chart_of(steps, *row, columns, unicode);
  return text;
}

}  // namespace heddle::observe
