// The charts of the report, each one a <figure> of HTML with an inline SVG: lines, stacked areas, heat maps, lanes.
//
// Colours come from the page's style sheet by class (c0 .. c10, ink, and names of their own), so that light and
// dark schemes need no second drawing. Numbers for the tooltips go with the figure as JSON, read by the page's
// small script; without it the figures stay complete pictures. Curves are thinned to what their pixels can show,
// keeping every pixel's smallest and largest value, so a figure's size is bounded whatever the length of the run. A
// value that can't be drawn (NaN, infinity, zero on a logarithmic axis) leaves a gap. All text is escaped here.
//
// A picture that is scaled down has letters too small to read. Lines, areas and heat maps are therefore drawn for
// three widths of the page (views_of), of which the style sheet shows one.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "heddle/observe/charts/svg_axis.h"
#include "heddle/observe/timeline.h"

namespace heddle::observe {

inline constexpr int kChartColours = 11;
inline constexpr int kInkColour = -1;  // the colour of the text

enum class Mark { line, dashed, points, faint };

struct Series {
  std::string label;      // "": not in the legend and not in the tooltip
  std::vector<double> x;  // increasing
  std::vector<double> y;
  int colour = 0;
  Mark mark = Mark::line;
};

/// A horizontal line that curves are measured against.
struct Level {
  std::string label;
  double y = 0;
};

/// A place that the figure is about, with what it is.
struct Point {
  std::string label;
  double x = 0, y = 0;
};

struct LineChart {
  std::string title;
  std::string x_label;
  std::string y_label;  // the meaning of the numbers, above the axis
  std::vector<Series> series;
  std::vector<Level> levels;
  AxisScale y_scale = AxisScale::linear;
  AxisUnit x_unit = AxisUnit::plain;
  AxisUnit y_unit = AxisUnit::plain;
  std::optional<double> from;  // the axis shows this value whatever the curves do; below 0 not on a logarithmic one
  int width = 560;
  int height = 220;
};
std::string line_chart(const LineChart& chart);

/// Layers on top of one another, each holding its value from x[i] until x[i + 1]; then lines over them, also
/// stepped.
struct StackedArea {
  std::string title;
  std::string x_label;
  std::string y_label;
  std::vector<double> x;
  std::vector<Series> layers;  // their x is not used; the first lies at the bottom
  std::vector<Series> lines;   // likewise
  std::vector<Level> levels;   // one far above the rest is written in words instead of being drawn
  std::vector<Point> points;
  AxisUnit x_unit = AxisUnit::microseconds;
  AxisUnit y_unit = AxisUnit::bytes;
  int width = 1140;
  int height = 300;
};
std::string stacked_area(const StackedArea& chart);

/// Ratios around 1, coloured by their logarithm from 1 ÷ `most` to `most`. NaN cells stay empty.
struct HeatMap {
  using Ratio = std::vector<std::vector<double>>;  // [row][column], rows may differ in length
  std::string title, note;
  std::string ratio_word;  // "load ÷ mean", for the tooltip
  double most = 4;
  std::string x_label;
  std::string row_word;     // "layer", for the tooltip
  std::string column_word;  // "expert"
  std::vector<std::string> rows;
  Ratio ratio;
  /// Maps of several moments, each with the text behind the title: a slider chooses one, `ratio` is shown until
  /// then. Two maps on a page move together as far as they have moments of one name.
  std::vector<std::pair<std::string, Ratio>> frames;
  int width = 1140;
};
std::string heat_map(const HeatMap& chart);

/// Streams over time, one lane each, coloured by phase.
struct Lanes {
  std::string title;
  const Timeline* timeline = nullptr;
  std::string kind_word = "kind";  // names the kinds of its spans
  std::string note;                // beside the title
  double until_us = 0;             // the axis ends there, or with the last span
  int width = 1140;
};
std::string lanes(const Lanes& chart);

// Below: pieces shared by the charts.

/// Coordinates with one decimal at most.
std::string coordinate(double value);

struct Plot {
  double left = 0, top = 0, right = 0, bottom = 0;
  double x(const Axis& axis, double value) const { return left + axis.position(value) * (right - left); }
  double y(const Axis& axis, double value) const { return bottom - axis.position(value) * (bottom - top); }
};

/// The room that the labels of the axes leave, and the grid, ticks and labels themselves.
Plot place_plot(const Axis& x, const Axis& y, int width, int height, bool labelled);
std::string draw_axes(const Plot& plot, const Axis& x, const Axis& y, const std::string& x_label,
                      const std::string& y_label);

/// One drawing of a figure, and what its tooltips must know of it, as the fields of a JSON object.
struct View {
  std::string svg;
  std::string json;
};
/// The figure's drawings for a wide page, where it is as wide as it says, a middle one and a narrow one.
struct Views {
  std::string svg, json;
};
Views views_of(int width, int height, const std::function<View(int width, int height)>& draw);

/// The opening tag.
std::string open_svg(int width, double height, const std::string& title);

struct LegendEntry {
  std::string label;
  std::string colour_class;
  Mark mark = Mark::line;
};
std::string open_figure(const std::string& kind, const std::string& title, const std::vector<LegendEntry>& legend,
                        const std::string& note = "");

/// Thins a curve to at most about four points a column of pixels: the first, the smallest, the largest, the last.
/// Returns indices.
std::vector<size_t> thin_indices(const std::vector<double>& x, const std::vector<double>& y, double low,
                                 double high, int columns);

}  // namespace heddle::observe
