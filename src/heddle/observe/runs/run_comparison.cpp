#include "heddle/observe/runs/run_comparison.h"

#include <fmt/format.h>

#include <algorithm>

#include "heddle/observe/charts/html.h"
#include "heddle/observe/charts/html_table.h"
#include "heddle/observe/charts/page.h"
#include "heddle/observe/charts/step_curves.h"
#include "heddle/observe/units.h"

namespace heddle::observe {

namespace {

constexpr int kComparedHalf = 560, kComparedFull = 1140;

HtmlTable figures_html(const std::vector<ComparedRun>& runs) {
  HtmlTable table;
  table.caption = "Loss is the mean of the last fiftieth of the steps; times and rates are medians";
  table.columns = {{"run", false, true}, {"steps", true}};
  for (const Figure* row : figures::kRows)
    if (!row->column.empty()) table.columns.push_back({std::string(row->column), true});
  for (const ComparedRun& run : runs) {
    std::vector<std::string> cells{run.name, grouped_text(run.figures.step)};
    for (const Figure* row : figures::kRows) {
      if (row->column.empty()) continue;
      const auto value = run.figures.get(*row);
      cells.push_back(value ? text_of(*row, *value) : "");
    }
    table.rows.push_back(std::move(cells));
  }
  return table;
}

HtmlTable settings_html(const std::vector<ComparedRun>& runs) {
  HtmlTable table;
  table.caption = "Settings that differ";
  table.columns = {{"key", false, true}};
  for (const ComparedRun& run : runs) table.columns.push_back({run.name, false, true});
  for (const DifferingSetting& setting : differing_settings(runs)) {
    std::vector<std::string> cells{setting.key};
    cells.insert(cells.end(), setting.of_runs.begin(), setting.of_runs.end());
    table.rows.push_back(std::move(cells));
  }
  return table;
}

enum class Over { steps, tokens, time };

// The figure of every run that has it, over what the runs have in common.
LineChart chart_of(const std::vector<ComparedRun>& runs, const Figure& row, Over over, LineChart chart,
                   bool noisy = true) {
  for (size_t r = 0; r < runs.size(); ++r) {
    Series series{runs[r].name, {}, {}, static_cast<int>(r), Mark::line};
    for (const StepMetrics& step : runs[r].steps) {
      const std::optional<double> at = over == Over::steps    ? static_cast<double>(step.step)
                                       : over == Over::tokens ? step.get(figures::kTokens)
                                                              : step.get(figures::kTrainedSeconds);
      const auto value = step.get(row);
      if (!at || !value) continue;
      const double x = over == Over::time ? *at * 1e6 : *at;  // as the axis counts
      if (!series.x.empty() && x <= series.x.back()) continue;
      series.x.push_back(x);
      series.y.push_back(*value);
    }
    if (noisy) {
      add_noisy(chart.series, std::move(series));
    } else if (!series.y.empty()) {
      chart.series.push_back(std::move(series));
    }
  }
  chart.x_label = over == Over::steps ? "step" : over == Over::tokens ? "tokens" : "time in steps";
  if (over != Over::steps) chart.x_unit = over == Over::tokens ? AxisUnit::count : AxisUnit::microseconds;
  chart.y_scale = scale_for(chart.series);
  return chart;
}

LineChart titled(const std::string& title, const std::string& of, AxisUnit unit = AxisUnit::plain,
                 int width = kComparedHalf, int height = 220) {
  LineChart chart;
  chart.title = title;
  chart.y_label = of;
  chart.y_unit = unit;
  chart.width = width;
  chart.height = height;
  return chart;
}

}  // namespace

std::vector<DifferingSetting> differing_settings(const std::vector<ComparedRun>& runs) {
  std::vector<DifferingSetting> all;
  for (size_t r = 0; r < runs.size(); ++r) {
    for (const auto& [key, value] : runs[r].settings) {
      auto found = std::find_if(all.begin(), all.end(), [&](const auto& s) { return s.key == key; });
      if (found == all.end()) found = all.insert(all.end(), {key, std::vector<std::string>(runs.size())});
      found->of_runs[r] = value;
    }
  }
  std::erase_if(all, [](const DifferingSetting& setting) {
    return std::all_of(setting.of_runs.begin(), setting.of_runs.end(),
                       [&](const std::string& value) { return value == setting.of_runs.front(); });
  });
  return all;
}

Table figures_table(const std::vector<ComparedRun>& runs) {
  std::vector<Column> columns{{"run"}};
  HtmlTable html = figures_html(runs);
  for (size_t i = 1; i < html.columns.size(); ++i) columns.push_back({html.columns[i].title, Align::right});
  Table table(columns);
  for (std::vector<std::string>& cells : html.rows) table.row(std::move(cells));
  return table;
}

Table settings_table(const std::vector<ComparedRun>& runs) {
  std::vector<Column> columns{{"setting"}};
  for (const ComparedRun& run : runs) columns.push_back({run.name});
  Table table(columns);
  for (std::vector<std::string>& cells : settings_html(runs).rows) table.row(std::move(cells));
  return table;
}

std::string comparison_html(const std::vector<ComparedRun>& runs) {
  Page page;
  page.brand = "Heddle · runs";
  page.title = runs.size() == 1 ? runs[0].name : fmt::format("{} runs", runs.size());
  page.subtitle = date_text();
  const auto draw = [&](const Figure& row, Over over, LineChart chart, bool noisy = true) {
    const bool wide = chart.width == kComparedFull;
    return panel(line_chart(chart_of(runs, row, over, std::move(chart), noisy)), wide);
  };
  page.add_section("figures", "Figures",
                   panel(figures_html(runs).html(), true) + panel(settings_html(runs).html(), true));
  page.add_section("learning", "Learning",
                   draw(figures::kLoss, Over::tokens,
                        titled("Loss over tokens", "nats a token", AxisUnit::plain, kComparedFull, 330)) +
                       draw(figures::kHeldOutLoss, Over::tokens, titled("Held-out loss", "nats a token"), false) +
                       draw(figures::kLoss, Over::time, titled("Loss over time", "nats a token")) +
                       draw(figures::kGradientNorm, Over::steps, titled("Gradient norm", "before clipping")) +
                       draw(figures::kLearningRate, Over::steps, titled("Learning rate", "step size"), false));
  page.add_section(
      "speed", "Speed and memory",
      draw(figures::kTokensPerSecond, Over::steps, titled("Tokens per second", "tok/s", AxisUnit::count)) +
          draw(figures::kArenaReservedPeak, Over::steps,
               titled("Arena", "bytes of the fullest rank", AxisUnit::bytes), false));
  page.add_section("experts", "Experts",
                   draw(figures::kImbalance, Over::steps,
                        titled("Imbalance: busiest expert ÷ mean", "rows ÷ mean, the worst layer", AxisUnit::plain,
                               kComparedFull)));
  page.figures_json = "[";
  for (const ComparedRun& run : runs)
    page.figures_json += fmt::format("{}{}", page.figures_json.size() > 1 ? "," : "", json_of(run.figures));
  page.figures_json += "]";
  return page_html(page);
}

}  // namespace heddle::observe
