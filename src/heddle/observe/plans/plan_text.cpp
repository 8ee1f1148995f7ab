#include <fmt/format.h>

#include "heddle/observe/plans/plan_figures.h"
#include "heddle/observe/plans/plan_page.h"
#include "heddle/observe/table.h"

namespace heddle::observe {

namespace {

constexpr size_t kMostTextNeighbours = 12, kMostTextRemedies = 5;

std::string text_of(const PlanTable& from, const Terminal& terminal) {
  if (from.rows.empty()) return "";
  std::vector<Column> columns;
  for (size_t i = 0; i < from.columns.size(); ++i) {
    const bool words = i == 0 || (from.ends_in_words && i + 1 == from.columns.size());
    columns.push_back({from.columns[i], words ? Align::left : Align::right});
  }
  Table table(columns);
  for (const std::vector<std::string>& row : from.rows) table.row(row);
  return table.text(terminal) + "\n";
}

}  // namespace

std::string plan_text(const search::Explanation& x, const Terminal& terminal) {
  const search::Job& j = x.launch.job;
  const PlanFiguresInFull f = figures_of(x);
  std::string out = fmt::format("{} on {} x {}: {}, {}\n", j.shape.name.empty() ? "model" : j.shape.name,
                                j.mesh.ranks(), j.device.name, search::layout_line(j), x.launch.schedule);
  if (!x.launch.layout.empty()) out += fmt::format("stages {}\n", x.launch.layout);
  out += fmt::format("step {} ({} to {}, nine of ten; from {}), {} tokens/s a device, MFU {}\n", f.step, f.low,
                     f.high, x.scale.from, f.tokens_per_s_per_device, f.utilization);
  if (!x.plan.untimed.empty()) out += fmt::format("by closed forms, no schedule was run: {}\n", x.plan.untimed);
  out += fmt::format("peak {} of {}{}\nbound by {}: {}\n\n", f.peak, f.memory, x.fits ? "" : ", does not fit",
                     x.binding, x.binding_why);
  out += text_of(step_table(x), terminal) + text_of(sensitivity_table(x), terminal) +
         text_of(memory_table(x), terminal) + text_of(remedy_table(x, kMostTextRemedies), terminal) +
         text_of(neighbour_table(x, kMostTextNeighbours), terminal);
  out.pop_back();
  return out;
}

}  // namespace heddle::observe
