#include "heddle/observe/charts/step_curves.h"

#include <algorithm>
#include <cmath>
#include <limits>

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

}  // namespace

Series series_of(const std::vector<StepMetrics>& steps, Figure figure, std::string label, int colour, Mark mark) {
  Series series{std::move(label), {}, {}, colour, mark};
  for (const StepMetrics& step : steps) {
    if (const auto& value = step.*figure) {
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

}  // namespace heddle::observe
