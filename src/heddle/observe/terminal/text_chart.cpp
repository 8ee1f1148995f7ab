#include "heddle/observe/terminal/text_chart.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "heddle/observe/table.h"
#include "heddle/observe/units.h"

namespace heddle::observe {

namespace {

constexpr int kLeastColumns = 24, kLeastRows = 4;  // a title, two lines of the curve, the axis

// The mean of y over each of `count` equal stretches of x, NaN where there is none.
std::vector<double> columns_of(const TextChart& chart, int count) {
  const double low = chart.x.front(), span = std::max(chart.x.back() - low, 1e-300);
  std::vector<double> sum(static_cast<size_t>(count)), n(static_cast<size_t>(count));
  for (size_t i = 0; i < chart.x.size(); ++i) {
    if (!std::isfinite(chart.y[i])) continue;
    const auto at = static_cast<size_t>(std::min<double>(count - 1, (chart.x[i] - low) / span * count));
    sum[at] += chart.y[i];
    n[at] += 1;
  }
  for (size_t c = 0; c < sum.size(); ++c)
    sum[c] = n[c] > 0 ? sum[c] / n[c] : std::numeric_limits<double>::quiet_NaN();
  return sum;
}

// Fewer steps than columns leave holes: a straight line goes across them.
void bridge(std::vector<double>& values) {
  size_t last = values.size();
  for (size_t i = 0; i < values.size(); ++i) {
    if (!std::isfinite(values[i])) continue;
    for (size_t hole = last + 1; last < i && hole < i; ++hole) {
      const double part = static_cast<double>(hole - last) / static_cast<double>(i - last);
      values[hole] = values[last] + part * (values[i] - values[last]);
    }
    last = i;
  }
}

std::string utf8_of_braille(unsigned dots) {
  const unsigned code = 0x2800 + dots;
  return {static_cast<char>(0xE0 | (code >> 12)), static_cast<char>(0x80 | ((code >> 6) & 0x3F)),
          static_cast<char>(0x80 | (code & 0x3F))};
}

}  // namespace

std::string text_chart(const TextChart& chart) {
  if (chart.x.empty() || chart.columns < kLeastColumns || chart.rows < kLeastRows) return "";
  double low = std::numeric_limits<double>::infinity(), high = -low;
  const int lines = chart.rows - 2, per_line = chart.unicode ? 4 : 1, per_cell = chart.unicode ? 2 : 1;
  std::vector<double> widest = columns_of(chart, 1);
  if (!std::isfinite(widest[0])) return "";
  // The labels' width depends on the values, and those on how many columns are left.
  int label = 0, cells = chart.columns;
  std::vector<double> values;
  for (int attempt = 0; attempt < 2; ++attempt) {
    cells = chart.columns - label - 1;
    values = columns_of(chart, cells * per_cell);
    low = std::numeric_limits<double>::infinity(), high = -low;
    for (const double v : values) {
      if (std::isfinite(v)) low = std::min(low, v), high = std::max(high, v);
    }
    label = std::max(display_width(chart.y_text(low)), display_width(chart.y_text(high)));
  }
  bridge(values);
  const int dots = lines * per_line;
  std::vector<std::vector<unsigned>> cell(static_cast<size_t>(lines),
                                          std::vector<unsigned>(static_cast<size_t>(cells)));
  const auto mark = [&](size_t column, int height) {  // from the bottom
    static constexpr std::array<std::array<unsigned, 4>, 2> bits{
        {{0x40, 0x04, 0x02, 0x01}, {0x80, 0x20, 0x10, 0x08}}};
    const auto line = static_cast<size_t>(lines - 1 - height / per_line);
    unsigned& into = cell[line][column / static_cast<size_t>(per_cell)];
    into |= chart.unicode ? bits[column % 2][height % 4] : 1u;
  };
  int before = -1;
  for (size_t c = 0; c < values.size(); ++c) {
    if (!std::isfinite(values[c])) continue;
    const double part = high > low ? (values[c] - low) / (high - low) : 0.5;
    const int height = std::clamp(static_cast<int>(std::lround(part * (dots - 1))), 0, dots - 1);
    const int from = before < 0 ? height : before < height ? before + 1 : before > height ? before - 1 : height;
    for (int h = std::min(from, height); h <= std::max(from, height); ++h) mark(c, h);
    before = height;
  }
  std::string text = cut_to_width(chart.title, chart.columns) + "\n";
  for (size_t line = 0; line < cell.size(); ++line) {
    const std::string value = line == 0 ? chart.y_text(high) : line + 1 == cell.size() ? chart.y_text(low) : "";
    std::string drawn(static_cast<size_t>(label - display_width(value)), ' ');
    drawn += value + " ";
    for (const unsigned bits : cell[line]) drawn += bits == 0 ? " " : chart.unicode ? utf8_of_braille(bits) : "*";
    drawn.erase(drawn.find_last_not_of(' ') + 1);
    text += drawn + "\n";
  }
  const std::string first = grouped_text(std::llround(chart.x.front()));
  const std::string last = grouped_text(std::llround(chart.x.back()));
  const int gap = cells - display_width(first) - display_width(last);
  return text + std::string(static_cast<size_t>(label + 1), ' ') + first +
         (gap > 0 && first != last ? std::string(static_cast<size_t>(gap), ' ') + last : "") + "\n";
}

}  // namespace heddle::observe
