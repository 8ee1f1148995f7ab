#include "heddle/observe/experts/expert_charts.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "heddle/observe/charts/page.h"
#include "heddle/observe/charts/svg_chart.h"

namespace heddle::observe {

namespace {

constexpr int kExpertsWidth = 560;
constexpr size_t kMostCells = 200'000;  // in all moments of a map: a limit for the page

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
    if (!step.layers.empty()) all.push_back(&step);
  }
  if (all.empty()) return all;
  const size_t cells =
      std::max<size_t>(1, all.back()->layers.size() * all.back()->layers[0].list(figures::kExpertLoads).size());
  const size_t most = std::max<size_t>(2, kMostCells / cells), every = (all.size() + most - 1) / most;
  std::vector<const StepMetrics*> shown;
  for (size_t i = (all.size() - 1) % every; i < all.size(); i += every) shown.push_back(all[i]);
  return shown;
}

// A row's lists, by layer, over their mean.
HeatMap map_of(const std::vector<StepMetrics>& steps, const std::vector<std::string>& layers, const Figure& row) {
  HeatMap map;
  for (const StepMetrics* step : shown_steps(steps)) {
    HeatMap::Ratio ratio;
    for (const Figures& layer : step->layers) ratio.push_back(over_mean(layer.list(row)));
    const bool any = std::any_of(ratio.begin(), ratio.end(), [](const auto& numbers) { return !numbers.empty(); });
    if (any) map.frames.emplace_back(fmt::format("at step {}", step->step), std::move(ratio));
  }
  if (map.frames.empty()) return map;
  map.ratio = map.frames.back().second;
  for (size_t layer = 0; layer < map.ratio.size(); ++layer)
    map.rows.push_back(layer < layers.size() ? layers[layer] : fmt::format("{}", layer));
  map.row_word = "layer";
  return map;
}

}  // namespace

std::string load_maps(const std::vector<StepMetrics>& steps, const std::vector<std::string>& layers,
                      const std::string& note) {
  HeatMap map = map_of(steps, layers, figures::kExpertLoads);
  map.title = "Expert load ÷ mean";
  map.note = note;
  map.ratio_word = "load ÷ mean";
  map.x_label = map.column_word = "expert";
  return panel(heat_map(map), true);
}

std::string rank_maps(const std::vector<StepMetrics>& steps, const std::vector<std::string>& layers) {
  std::string panels;
  for (const auto& [row, title] : {std::pair{&figures::kRoutedRows, "Rank load ÷ mean as routed"},
                                   std::pair{&figures::kComputedRows, "Rank load ÷ mean with replicas"}}) {
    HeatMap map = map_of(steps, layers, *row);
    map.title = title;
    map.ratio_word = "rows ÷ mean";
    map.most = 2;
    map.x_label = "rank among those that share experts";
    map.column_word = "rank";
    map.width = kExpertsWidth;
    panels += panel(heat_map(map), false);
  }
  return panels;
}

}  // namespace heddle::observe
