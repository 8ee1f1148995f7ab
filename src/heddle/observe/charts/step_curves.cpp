#include "heddle/observe/charts/step_curves.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include "heddle/base/statistics.h"

namespace heddle::observe {

namespace {

constexpr size_t kSmoothFromPoints = 60;

std::vector<double> finite(const std::vector<double>& values) {
  std::vector<double> kept;
  for (const double v : values) {
    if (std::abs(v) <= kLargestPlotted) kept.push_back(v);
  }
  return kept;
}

// The mean over a fiftieth of the curve around each point, less beside a gap or an end; around it, not behind it,
// so that it doesn't lag.
Series smoothed(Series series) {
  const size_t count = series.y.size(), most = std::max<size_t>(1, count / 100);
  const std::vector<double> raw = series.y;
  // How many drawable values follow one another up to and including each point, seen from either side.
  std::vector<size_t> before(count, 0), after(count, 0);
  std::vector<double> sum_until(count + 1, 0.0);
  for (size_t i = 0; i < count; ++i) {
    const bool solid = std::abs(raw[i]) <= kLargestPlotted;
    if (solid) before[i] = (i > 0 ? before[i - 1] : 0) + 1;
    sum_until[i + 1] = sum_until[i] + (solid ? raw[i] : 0);
  }
  for (size_t i = count; i-- > 0;) {
    if (before[i] > 0) after[i] = (i + 1 < count ? after[i + 1] : 0) + 1;
  }
  for (size_t i = 0; i < count; ++i) {
    if (before[i] == 0) continue;
    // Rightwards no further than leftwards: at a steep start the mean must not see what is yet to come.
    const size_t back = std::min(most, before[i] - 1), ahead = std::min(back, after[i] - 1);
    series.y[i] = (sum_until[i + ahead + 1] - sum_until[i - back]) / static_cast<double>(back + ahead + 1);
  }
  return series;
}

std::optional<double> typical(std::vector<double> values) {
  values = finite(values);
  if (values.empty()) return std::nullopt;
  return median(std::move(values));
}

AxisUnit axis_unit(Unit unit) {
  switch (unit) {
    case Unit::bytes: return AxisUnit::bytes;
    case Unit::count:
    case Unit::tokens:
    case Unit::tokens_per_s:
    case Unit::flops_per_s: return AxisUnit::count;
    default: return AxisUnit::plain;
  }
}

// A curve for each index of a family; of many the mean and the largest.
std::vector<Series> family_curves(const std::vector<StepMetrics>& steps, const Figure& row) {
  constexpr size_t kMost = 6;
  std::vector<std::pair<std::string, Series>> of_index;
  Series mean{.label = fmt::format("mean of the {}s", row.each), .colour = 1},
      most{.label = fmt::format("the {} with most", row.each), .colour = 2};
  const auto add = [](Series& series, const StepMetrics& step, double value) {
    series.x.push_back(static_cast<double>(step.step));
    series.y.push_back(value);
  };
  for (const StepMetrics& step : steps) {
    const std::vector<Figures::Number> numbers = step.family(row);
    double sum = 0, largest = -std::numeric_limits<double>::infinity();
    for (const Figures::Number& number : numbers) {
      auto at =
          std::find_if(of_index.begin(), of_index.end(), [&](auto& known) { return known.first == number.index; });
      if (at == of_index.end()) {
        const int colour =
            static_cast<int>((static_cast<size_t>(row.curve.colour) + of_index.size()) % kChartColours);
        at = of_index.insert(
            at,
            {number.index, {.label = fmt::format(fmt::runtime(row.curve.label), number.index), .colour = colour}});
      }
      add(at->second, step, number.value);
      sum += number.value;
      largest = std::max(largest, number.value);
    }
    if (numbers.empty()) continue;
    add(mean, step, sum / static_cast<double>(numbers.size()));
    add(most, step, largest);
  }
  if (of_index.size() > kMost) return {std::move(mean), std::move(most)};
  std::vector<Series> curves;
  for (auto& [index, series] : of_index) curves.push_back(std::move(series));
  return curves;
}

void add_curves(LineChart& chart, const std::vector<StepMetrics>& steps, const Figure& row) {
  using Style = Figure::Curve::Style;
  std::vector<Series> curves;
  if (row.each.empty()) {
    curves.push_back(series_of(steps, row, std::string(row.curve.label), row.curve.colour,
                               row.curve.style == Style::points ? Mark::points : Mark::line));
  } else {
    curves = family_curves(steps, row);
  }
  for (Series& series : curves) {
    const bool zero = std::all_of(series.y.begin(), series.y.end(), [](double y) { return y == 0; });
    if (row.curve.chart->drops_zeros ? zero : series.y.empty()) continue;
    if (row.curve.style == Style::noisy) {
      add_noisy(chart.series, std::move(series));
    } else {
      chart.series.push_back(std::move(series));
    }
  }
}

}  // namespace

Series series_of(const std::vector<StepMetrics>& steps, const Figure& row, std::string label, int colour,
                 Mark mark) {
  Series series{std::move(label), {}, {}, colour, mark};
  for (const StepMetrics& step : steps) {
    if (const auto value = step.get(row)) {
      series.x.push_back(static_cast<double>(step.step));
      series.y.push_back(*value);
    }
  }
  return series;
}

void add_noisy(std::vector<Series>& into, Series series) {
  if (series.y.size() >= kSmoothFromPoints) {
    Series raw = series;
    raw.label.clear();
    raw.mark = Mark::faint;
    into.push_back(std::move(raw));
    series = smoothed(std::move(series));
  }
  if (!series.y.empty()) into.push_back(std::move(series));
}

AxisScale scale_for(const std::vector<Series>& curves) {
  double low = std::numeric_limits<double>::infinity(), high = 0;
  std::vector<double> all;
  for (const Series& series : curves) {
    for (const double v : finite(series.y)) {
      if (v <= 0) return AxisScale::linear;
      low = std::min(low, v);
      high = std::max(high, v);
      all.push_back(v);
    }
  }
  const std::optional<double> middle = typical(std::move(all));
  return middle && high > 15 * *middle && high > 30 * low ? AxisScale::log : AxisScale::linear;
}

std::vector<LineChart> charts_of(const std::vector<StepMetrics>& steps, FigureChart::Section section) {
  std::vector<LineChart> charts;
  for (const FigureChart* row_chart : figures::kCharts) {
    if (row_chart->section != section) continue;
    LineChart chart;
    chart.title = row_chart->title;
    chart.x_label = "step";
    chart.y_label = row_chart->of;
    if (!std::isnan(row_chart->from)) chart.from = row_chart->from;
    bool noisy = false;
    for (const Figure* row : figures::kRows) {
      if (row->curve.chart != row_chart) continue;
      add_curves(chart, steps, *row);
      chart.y_unit = axis_unit(row->unit);
      noisy = noisy || row->curve.style == Figure::Curve::Style::noisy;
    }
    if (noisy) chart.y_scale = scale_for(chart.series);
    if (!chart.series.empty()) charts.push_back(std::move(chart));
  }
  return charts;
}

}  // namespace heddle::observe
