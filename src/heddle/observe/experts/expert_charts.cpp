#include "heddle/observe/experts/expert_charts.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>
#include <tuple>

#include "heddle/observe/charts/html_table.h"
#include "heddle/observe/charts/page.h"
#include "heddle/observe/charts/step_curves.h"
#include "heddle/observe/charts/svg_chart.h"

namespace heddle::observe {

namespace {

constexpr int kHalfWidth = 560;
constexpr size_t kMostCells = 200'000;  // of all moments of a map: what a page may weigh

std::vector<double> over_mean(const std::vector<double>& rows) {
  const double mean =
      std::accumulate(rows.begin(), rows.end(), 0.0) / static_cast<double>(std::max<size_t>(1, rows.size()));
  std::vector<double> ratio;
  for (const double n : rows) ratio.push_back(mean > 0 ? n / mean : std::numeric_limits<double>::quiet_NaN());
  return ratio;
}

/// The steps that have figures of layers, the last one and as many before it as a page can carry, evenly.
std::vector<const StepMetrics*> shown_steps(const std::vector<StepMetrics>& steps) {
  std::vector<const StepMetrics*> all;
  for (const StepMetrics& step : steps) {
    if (!step.expert_loads_LE.empty()) all.push_back(&step);
  }
  if (all.empty()) return all;
  const size_t cells =
      std::max<size_t>(1, all.back()->expert_loads_LE.size() * all.back()->expert_loads_LE[0].size());
  const size_t most = std::max<size_t>(2, kMostCells / cells), every = (all.size() + most - 1) / most;
  std::vector<const StepMetrics*> shown;
  for (size_t i = (all.size() - 1) % every; i < all.size(); i += every) shown.push_back(all[i]);
  return shown;
}

using RowsOf = std::function<HeatMap::Ratio(const StepMetrics&)>;  // by layer, over their mean

HeatMap map_of(const std::vector<StepMetrics>& steps, const std::vector<std::string>& layers,
               const RowsOf& rows_of) {
  HeatMap map;
  for (const StepMetrics* step : shown_steps(steps)) {
    HeatMap::Ratio ratio = rows_of(*step);
    if (!ratio.empty()) map.frames.emplace_back(fmt::format("at step {}", step->step), std::move(ratio));
  }
  if (map.frames.empty()) return map;
  map.ratio = map.frames.back().second;
  for (size_t layer = 0; layer < map.ratio.size(); ++layer)
    map.rows.push_back(layer < layers.size() ? layers[layer] : fmt::format("{}", layer));
  map.row_word = "layer";
  return map;
}

// Rows of the fullest rank as routers sent them, and as ranks computed them.
LineChart fullest_rank(const std::vector<StepMetrics>& steps) {
  LineChart chart;
  chart.title = "Fullest rank ÷ mean: as routed, and with copies of hot experts";
  chart.x_label = "step";
  chart.y_label = "rows ÷ mean, all layers";
  for (const auto& [key, label, colour] :
       {std::tuple{"fullest_rank_routed", "as routed", 1}, {"fullest_rank_with_copies", "with copies", 2}}) {
    Series series;
    series.label = label;
    series.colour = colour;
    for (const StepMetrics& step : steps) {
      const auto at = step.extra.find(key);
      if (at == step.extra.end()) continue;
      series.x.push_back(static_cast<double>(step.step));
      series.y.push_back(at->second);
    }
    if (!series.y.empty()) chart.series.push_back(std::move(series));
  }
  if (!chart.series.empty()) chart.levels.push_back({"even load", 1});
  return chart;
}

LineChart curves(const std::vector<StepMetrics>& steps, const std::string& title, const std::string& of,
                 AxisUnit unit, const std::vector<std::tuple<Figure, const char*, int>>& figures) {
  LineChart chart;
  chart.title = title;
  chart.x_label = "step";
  chart.y_label = of;
  chart.y_unit = unit;
  chart.from_zero = true;
  for (const auto& [figure, label, colour] : figures) {
    Series series = series_of(steps, figure, label, colour);
    const bool any = std::any_of(series.y.begin(), series.y.end(), [](double y) { return y != 0; });
    if (any) chart.series.push_back(std::move(series));
  }
  return chart;
}

std::string totals(const RunFigures& figures) {
  HtmlTable table;
  table.caption = "Copies of hot experts, in all steps";
  table.columns = {{"what"}, {"of the run"}};
  for (const auto& [name, value] : copies_facts(figures)) table.rows.push_back({name, value});
  return table.html();
}

}  // namespace

std::string load_maps(const std::vector<StepMetrics>& steps, const std::vector<std::string>& layers) {
  HeatMap map = map_of(steps, layers, [](const StepMetrics& step) {
    HeatMap::Ratio ratio;
    for (const std::vector<double>& rows_E : step.expert_loads_LE) ratio.push_back(over_mean(rows_E));
    return ratio;
  });
  map.title = "Expert load ÷ mean";
  map.ratio_word = "load ÷ mean";
  map.x_label = map.column_word = "expert";
  return panel(heat_map(map), true);
}

std::string copies_panels(const std::vector<StepMetrics>& steps, const RunFigures& figures,
                          const std::vector<std::string>& layers) {
  if (!figures.copies) return "";
  std::string panels;
  for (const auto& [rows_H, title] : {std::pair{&LayerCopies::routed_H, "Rank load ÷ mean as routed"},
                                      std::pair{&LayerCopies::computed_H, "Rank load ÷ mean with copies"}}) {
    HeatMap map = map_of(steps, layers, [&](const StepMetrics& step) {
      HeatMap::Ratio ratio;
      for (const LayerCopies& layer : step.copies_L) ratio.push_back(over_mean(layer.*rows_H));
      return ratio;
    });
    map.title = title;
    map.ratio_word = "rows ÷ mean";
    map.most = 2;
    map.x_label = "rank among those that share experts";
    map.column_word = "rank";
    map.width = kHalfWidth;
    panels += panel(heat_map(map), false);
  }
  for (const LineChart& chart :
       {fullest_rank(steps),
        curves(steps, "Choices of copies, by how they ended", "choices a step", AxisUnit::plain,
               {{&StepMetrics::copies_by_counts, "copies by counts", 2},
                {&StepMetrics::copies_by_history, "copies by history", 0},
                {&StepMetrics::copies_even, "none: even", 10},
                {&StepMetrics::copies_not_worth, "none: none paid", 1}}),
        curves(steps, "Rows that copies took, and that they kept from crossing nodes", "rows a step",
               AxisUnit::count,
               {{&StepMetrics::copy_rows, "taken", 2}, {&StepMetrics::copy_crossings_saved, "kept on nodes", 3}}),
        curves(steps, "Bytes of copies", "bytes a step", AxisUnit::bytes,
               {{&StepMetrics::copy_weight_bytes, "weights", 0},
                {&StepMetrics::copy_gradient_bytes, "gradients", 4}})})
    panels += panel(line_chart(chart), false);
  return panels + panel(totals(figures), true);
}

}  // namespace heddle::observe
