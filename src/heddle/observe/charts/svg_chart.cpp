#include "heddle/observe/charts/svg_chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>

#include "heddle/base/error.h"
#include "heddle/observe/charts/html.h"
#include "heddle/observe/table.h"

namespace heddle::observe {
namespace {

constexpr double kLetterWidth = 6.3;  // a letter of the tick labels' 11 px font, a little generous
constexpr int kTooltipColumns = 500;

struct Range {
  double low = std::numeric_limits<double>::infinity();
  double high = -std::numeric_limits<double>::infinity();
  void add(double value, bool positive_only) {
    if (!(std::abs(value) <= kLargestPlotted) || (positive_only && value <= 0)) return;
    low = std::min(low, value);
    high = std::max(high, value);
  }
  bool empty() const { return low > high; }
};

// A number as JSON with enough digits for a tooltip.
std::string json_number(double value) { return std::isfinite(value) ? fmt::format("{:.6g}", value) : "null"; }

std::string json_numbers(const std::vector<double>& values, const std::vector<size_t>& indices) {
  std::string text = "[";
  for (const size_t i : indices) text += fmt::format("{}{}", text.size() > 1 ? "," : "", json_number(values[i]));
  return text + "]";
}

std::string axis_json(const Axis& axis) {
  return fmt::format(R"({{"low":{:.12g},"high":{:.12g},"log":{},"unit":{}}})", axis.low, axis.high,
                     axis.scale == AxisScale::log, static_cast<int>(axis.unit));
}

std::string plot_json(const Plot& plot, const Axis& x, const Axis& y) {
  return fmt::format(R"("plot":[{},{},{},{}],"x":{},"y":{})", coordinate(plot.left), coordinate(plot.top),
                     coordinate(plot.right), coordinate(plot.bottom), axis_json(x), axis_json(y));
}

std::string colour_class(int colour) {
  return colour == kInkColour ? "ink" : fmt::format("c{}", colour % kChartColours);
}

std::string curve(const Plot& plot, const Axis& x, const Axis& y, const Series& series, bool stepped) {
  const std::vector<size_t> kept =
      thin_indices(series.x, series.y, x.low, x.high, static_cast<int>(plot.right - plot.left));
  const std::string colour = colour_class(series.colour);
  if (series.mark == Mark::points) {
    std::string text;
    for (const size_t i : kept) {
      const double at_x = plot.x(x, series.x[i]), at_y = plot.y(y, series.y[i]);
      if (std::isnan(at_x) || std::isnan(at_y)) continue;
      text += fmt::format("<circle class=\"point {}\" cx=\"{}\" cy=\"{}\" r=\"3.2\"/>\n", colour, coordinate(at_x),
                          coordinate(at_y));
    }
    return text;
  }
  std::string path, dots;
  double first_x = 0, first_y = 0, last_y = 0;
  int length = 0;  // points since the last gap
  const auto end_stretch = [&] {
    // A point between two gaps would be a line of no length: it gets a dot.
    if (length == 1) {
      dots += fmt::format("<circle class=\"point {}\" cx=\"{}\" cy=\"{}\" r=\"1.6\"/>\n", colour,
                          coordinate(first_x), coordinate(first_y));
    }
    length = 0;
  };
  for (const size_t i : kept) {
    const double at_x = plot.x(x, series.x[i]), at_y = plot.y(y, series.y[i]);
    if (std::isnan(at_x) || std::isnan(at_y)) {
      end_stretch();
      continue;
    }
    if (length == 0) {
      first_x = at_x;
      first_y = at_y;
      path += fmt::format("M{} {}", coordinate(at_x), coordinate(at_y));
    } else {
      if (stepped) path += fmt::format("L{} {}", coordinate(at_x), coordinate(last_y));
      path += fmt::format("L{} {}", coordinate(at_x), coordinate(at_y));
    }
    last_y = at_y;
    ++length;
  }
  end_stretch();
  if (path.empty()) return dots;
  const char* mark = series.mark == Mark::dashed ? " dashed" : series.mark == Mark::faint ? " faint" : "";
  return fmt::format("<path class=\"line {}{}\" d=\"{}\"/>\n", colour, mark, path) + dots;
}

// The area that a label of a point or level covers, its letters taken as wide as they usually are.
struct Label {
  double left, right, base;

  static Label at(double x, double base, bool ends_there, const std::string& text) {
    constexpr double kLetter = 6.4;
    const double width = kLetter * static_cast<double>(text.size());
    return ends_there ? Label{x - width, x, base} : Label{x, x + width, base};
  }
  bool covers(const Label& other) const {
    return std::abs(base - other.base) < 13 && left < other.right && other.left < right;
  }
};

struct PointLabel {
  double x, y;
  bool left;  // left of its point, where there is more room
  Label label;
};
std::optional<PointLabel> label_of(const Plot& plot, const Axis& x, const Axis& y, const Point& point) {
  const double at_x = plot.x(x, point.x), at_y = plot.y(y, point.y);
  if (std::isnan(at_x) || std::isnan(at_y)) return std::nullopt;
  const bool left = at_x > (plot.left + plot.right) / 2;
  const double base = std::max(at_y - 7, plot.top + 1);
  return PointLabel{at_x, at_y, left, Label::at(at_x + (left ? -9 : 9), base, left, point.label)};
}

// A label stands on its line at the right end, or at the left one where points' labels are in the way. It hangs
// below the line where the top edge or another label is.
std::string draw_levels(const Plot& plot, const Axis& x, const Axis& y, const std::vector<Level>& levels,
                        const std::vector<Point>& points) {
  std::string text;
  std::vector<Label> taken;
  for (const Point& point : points) {
    if (const auto label = label_of(plot, x, y, point)) taken.push_back(label->label);
  }
  const auto crowded = [&](const Label& label) {
    return label.base < plot.top + 6 ||
           std::any_of(taken.begin(), taken.end(), [&](const Label& other) { return label.covers(other); });
  };
  for (const Level& level : levels) {
    const double at = plot.y(y, level.y);
    if (!(at >= plot.top - 0.5 && at <= plot.bottom + 0.5)) continue;
    const std::string words = level.label + " " + axis_value_text(level.y, y.unit);
    struct Place {
      double x, base;
      bool right;
    };
    const Place places[] = {{plot.right - 4, at - 5, true},
                            {plot.left + 4, at - 5, false},
                            {plot.right - 4, at + 13, true},
                            {plot.left + 4, at + 13, false}};
    const auto free = std::find_if(std::begin(places), std::end(places), [&](const Place& place) {
      return !crowded(Label::at(place.x, place.base, place.right, words));
    });
    const Place& place = free == std::end(places) ? places[2] : *free;
    taken.push_back(Label::at(place.x, place.base, place.right, words));
    text += fmt::format("<line class=\"level\" x1=\"{}\" x2=\"{}\" y1=\"{}\" y2=\"{}\"/>", coordinate(plot.left),
                        coordinate(plot.right), coordinate(at), coordinate(at));
    text +=
        fmt::format("<text class=\"level-label\" x=\"{}\" y=\"{}\" text-anchor=\"{}\">{}</text>\n",
                    coordinate(place.x), coordinate(place.base), place.right ? "end" : "start", escape_html(words));
  }
  return text;
}

std::string draw_points(const Plot& plot, const Axis& x, const Axis& y, const std::vector<Point>& points) {
  std::string text;
  for (const Point& point : points) {
    const auto at = label_of(plot, x, y, point);
    if (!at) continue;
    text += fmt::format("<circle class=\"point ink\" cx=\"{}\" cy=\"{}\" r=\"4\"/>", coordinate(at->x),
                        coordinate(at->y));
    text += fmt::format("<text class=\"level-label strong\" x=\"{}\" y=\"{}\" text-anchor=\"{}\">{}</text>\n",
                        coordinate(at->left ? at->label.right : at->label.left), coordinate(at->label.base),
                        at->left ? "end" : "start", escape_html(point.label));
  }
  return text;
}

}  // namespace

std::string coordinate(double value) {
  std::string text = fmt::format("{:.1f}", value);
  if (text.ends_with(".0")) text.resize(text.size() - 2);
  return text == "-0" ? "0" : text;
}

std::string open_svg(int width, double height, const std::string& title) {
  return fmt::format(
      "<svg viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"{}\" preserveAspectRatio=\"xMidYMid meet\">\n", width,
      coordinate(height), escape_html(title));
}

Views views_of(int width, int height, const std::function<View(int width, int height)>& draw) {
  // Sizes of the panels where the page has one column, and on a telephone.
  constexpr int kMiddleWidth = 720, kNarrowWidth = 360, kNarrowHeight = 240;
  Views views;
  const auto add = [&](const char* name, int w, int h) {
    View view = draw(w, h);
    view.svg.insert(view.svg.find("<svg ") + 5, fmt::format("class=\"{}\" ", name));
    views.svg += view.svg;
    views.json += fmt::format("{}{{{}}}", views.json.empty() ? "" : ",", view.json);
  };
  add("for-wide", width, height);
  add("for-middle", kMiddleWidth, height);
  add("for-narrow", kNarrowWidth, std::min(height, kNarrowHeight));
  return views;
}

Plot place_plot(const Axis& x, const Axis& y, int width, int height, bool labelled) {
  int widest = 0;
  for (const Tick& tick : y.ticks) widest = std::max(widest, display_width(tick.label));
  const double last_label = x.ticks.empty() ? 0 : display_width(x.ticks.back().label) * kLetterWidth / 2;
  return {std::max(34.0, widest * kLetterWidth + 14), labelled ? 26.0 : 10.0, width - std::max(12.0, last_label),
          height - 40.0};
}

std::string draw_axes(const Plot& plot, const Axis& x, const Axis& y, const std::string& x_label,
                      const std::string& y_label) {
  std::string text;
  if (!y_label.empty()) {
    text += fmt::format("<text class=\"axis-label\" x=\"0\" y=\"9\">{}</text>\n", escape_html(y_label));
  }
  for (const Tick& tick : y.ticks) {
    const std::string at = coordinate(plot.y(y, tick.value));
    text += fmt::format("<line class=\"grid\" x1=\"{}\" x2=\"{}\" y1=\"{}\" y2=\"{}\"/>", coordinate(plot.left),
                        coordinate(plot.right), at, at);
    text += fmt::format("<text class=\"tick\" x=\"{}\" y=\"{}\" dy=\"0.35em\" text-anchor=\"end\">{}</text>\n",
                        coordinate(plot.left - 8), at, escape_html(tick.label));
  }
  text += fmt::format("<line class=\"axis\" x1=\"{}\" x2=\"{}\" y1=\"{}\" y2=\"{}\"/>\n", coordinate(plot.left),
                      coordinate(plot.right), coordinate(plot.bottom), coordinate(plot.bottom));
  double free_from = -1e9;
  for (const Tick& tick : x.ticks) {
    const double at = plot.x(x, tick.value);
    const double half = display_width(tick.label) * kLetterWidth / 2;
    text += fmt::format("<line class=\"axis\" x1=\"{0}\" x2=\"{0}\" y1=\"{1}\" y2=\"{2}\"/>", coordinate(at),
                        coordinate(plot.bottom), coordinate(plot.bottom + 4));
    if (at - half < free_from) continue;  // labels never touch
    free_from = at + half + 6;
    text += fmt::format("<text class=\"tick\" x=\"{}\" y=\"{}\" text-anchor=\"middle\">{}</text>\n", coordinate(at),
                        coordinate(plot.bottom + 16), escape_html(tick.label));
  }
  text += fmt::format("<text class=\"axis-label\" x=\"{}\" y=\"{}\" text-anchor=\"middle\">{}</text>\n",
                      coordinate((plot.left + plot.right) / 2), coordinate(plot.bottom + 33), escape_html(x_label));
  return text;
}

std::string open_figure(const std::string& kind, const std::string& title, const std::vector<LegendEntry>& legend,
                        const std::string& note) {
  std::string text =
      fmt::format("<figure class=\"chart\" data-kind=\"{}\">\n<figcaption><span class=\"title\">{}</span>", kind,
                  escape_html(title));
  if (!note.empty()) text += fmt::format("<span class=\"note\">{}</span>", escape_html(note));
  if (!legend.empty()) {
    text += "<span class=\"legend\">";
    for (const LegendEntry& entry : legend) {
      const char* mark = entry.mark == Mark::points ? "dot" : entry.mark == Mark::dashed ? "dash" : "swatch";
      text +=
          fmt::format("<span><i class=\"{} {}\"></i>{}</span>", mark, entry.colour_class, escape_html(entry.label));
    }
    text += "</span>";
  }
  return text + "</figcaption>\n";
}

std::vector<size_t> thin_indices(const std::vector<double>& x, const std::vector<double>& y, double low,
                                 double high, int columns) {
  const size_t count = std::min(x.size(), y.size());
  std::vector<size_t> kept;
  if (count <= 4 * static_cast<size_t>(std::max(1, columns))) {
    kept.resize(count);
    std::iota(kept.begin(), kept.end(), size_t{0});
    return kept;
  }
  const auto column_of = [&](size_t i) {
    const double position = (x[i] - low) / (high - low) * columns;
    return position >= 0 && position < columns ? static_cast<int>(position) : position < 0 ? -1 : columns;
  };
  for (size_t begin = 0; begin < count;) {
    const int column = column_of(begin);
    size_t end = begin + 1, least = begin, most = begin;
    // A value that is no number ends the bucket: the gap it makes must survive.
    const auto solid = [&](size_t i) { return std::abs(y[i]) <= kLargestPlotted; };
    for (; end < count && column_of(end) == column && solid(end) == solid(begin); ++end) {
      if (y[end] < y[least]) least = end;
      if (y[end] > y[most]) most = end;
    }
    size_t chosen[] = {begin, std::min(least, most), std::max(least, most), end - 1};
    for (const size_t i : chosen) {
      if (kept.empty() || kept.back() < i) kept.push_back(i);
    }
    begin = end;
  }
  return kept;
}

std::string line_chart(const LineChart& chart) {
  const bool log_scale = chart.y_scale == AxisScale::log;
  Range x_range, y_range;
  for (const Series& series : chart.series) {
    HEDDLE_CHECK(series.x.size() == series.y.size(), "series '{}' with {} x and {} y", series.label,
                 series.x.size(), series.y.size());
    for (size_t i = 0; i < series.x.size(); ++i) {
      x_range.add(series.x[i], false);
      y_range.add(series.y[i], log_scale);
    }
  }
  if (y_range.empty()) return "";
  for (const Level& level : chart.levels) y_range.add(level.y, log_scale);
  if (chart.from) y_range.add(*chart.from, log_scale);
  std::vector<LegendEntry> legend;
  std::string data;
  for (const Series& series : chart.series) {
    if (series.label.empty()) continue;
    legend.push_back({series.label, colour_class(series.colour), series.mark});
    const std::vector<size_t> kept =
        thin_indices(series.x, series.y, x_range.low, x_range.high, kTooltipColumns / 2);
    data += fmt::format(R"({}{{"label":{},"colour":{},"x":{},"y":{}}})", data.empty() ? "" : ",",
                        json_string(series.label), json_string(colour_class(series.colour)),
                        json_numbers(series.x, kept), json_numbers(series.y, kept));
  }
  if (legend.size() == 1 && legend[0].label == chart.title) legend.clear();
  const Views views = views_of(chart.width, chart.height, [&](int width, int height) {
    const Axis x = make_axis({x_range.low, x_range.high, AxisScale::linear, chart.x_unit, width / 95,
                              chart.x_unit == AxisUnit::plain, true});
    const Axis y = make_axis({y_range.low, y_range.high, chart.y_scale, chart.y_unit, height / 48});
    const Plot plot = place_plot(x, y, width, height, !chart.y_label.empty());
    std::string curves;
    for (const Series& series : chart.series) curves += curve(plot, x, y, series, false);
    return View{open_svg(width, height, chart.title) + draw_axes(plot, x, y, chart.x_label, chart.y_label) +
                    curves + draw_levels(plot, x, y, chart.levels, {}) + "<g class=\"hover\"></g>\n</svg>\n",
                plot_json(plot, x, y)};
  });
  return open_figure("line", chart.title, legend) + views.svg +
         fmt::format(R"(<script type="application/json">{{"xLabel":{},"stepped":false,"views":[{}],"series":[{}]}})"
                     "</script>\n</figure>\n",
                     json_string(chart.x_label), views.json, data);
}

std::string stacked_area(const StackedArea& chart) {
  const size_t count = chart.x.size();
  if (count < 2) return "";
  for (const std::vector<Series>* group : {&chart.layers, &chart.lines}) {
    for (const Series& series : *group) {
      HEDDLE_CHECK(series.y.size() == count, "series '{}' with {} values for {} x", series.label, series.y.size(),
                   count);
    }
  }
  std::vector<double> total(count, 0.0);
  for (const Series& layer : chart.layers) {
    // An area can't have a hole in one of its layers: what is no amount counts as nothing.
    for (size_t i = 0; i < count; ++i) total[i] += layer.y[i] > 0 && layer.y[i] <= kLargestPlotted ? layer.y[i] : 0;
  }
  Range x_range, y_range;
  y_range.add(0, false);
  for (size_t i = 0; i < count; ++i) {
    x_range.add(chart.x[i], false);
    y_range.add(total[i], false);
    for (const Series& line : chart.lines) y_range.add(line.y[i], false);
  }
  std::vector<Level> drawn;
  std::string far_levels;
  const double highest = y_range.high;
  for (const Level& level : chart.levels) {
    if (level.y <= highest * 2 || highest <= 0) {
      y_range.add(level.y, false);
      drawn.push_back(level);
    } else {
      far_levels += fmt::format("{}{} {}", far_levels.empty() ? "" : ", ", level.label,
                                axis_value_text(level.y, chart.y_unit));
    }
  }
  // In the legend and the tooltip the uppermost layer comes first, as in the picture.
  std::string data;
  std::vector<LegendEntry> legend;
  const std::vector<size_t> shown =
      thin_indices(chart.x, total, x_range.low, x_range.high, std::max(kTooltipColumns, chart.width));
  const auto add_data = [&](const Series& series) {
    legend.push_back({series.label, colour_class(series.colour), series.mark});
    data += fmt::format(R"({}{{"label":{},"colour":{},"x":{},"y":{}}})", data.empty() ? "" : ",",
                        json_string(series.label), json_string(colour_class(series.colour)),
                        json_numbers(chart.x, shown), json_numbers(series.y, shown));
  };
  for (auto layer = chart.layers.rbegin(); layer != chart.layers.rend(); ++layer) add_data(*layer);
  for (const Series& line : chart.lines) add_data(line);

  const Views views = views_of(chart.width, chart.height, [&](int width, int height) {
    const Axis x =
        make_axis({x_range.low, x_range.high, AxisScale::linear, chart.x_unit, width / 110, false, true});
    const Axis y = make_axis({0, y_range.high, AxisScale::linear, chart.y_unit, height / 48});
    const Plot plot = place_plot(x, y, width, height, !chart.y_label.empty());
    // All layers are thinned at the same places, those where the total has its extremes.
    const std::vector<size_t> kept =
        thin_indices(chart.x, total, x.low, x.high, static_cast<int>(plot.right - plot.left));
    std::vector<double> base(count, 0.0);
    std::string areas;
    for (const Series& layer : chart.layers) {
      std::string upper;
      std::vector<std::string> lower;  // walked back from the right
      std::vector<double> top = base;
      for (size_t i = 0; i < count; ++i) top[i] += layer.y[i] > 0 && layer.y[i] <= kLargestPlotted ? layer.y[i] : 0;
      for (size_t k = 0; k < kept.size(); ++k) {
        const std::string at_x = coordinate(plot.x(x, chart.x[kept[k]]));
        const std::string until_x = coordinate(k + 1 < kept.size() ? plot.x(x, chart.x[kept[k + 1]]) : plot.right);
        const std::string top_y = coordinate(plot.y(y, top[kept[k]])),
                          base_y = coordinate(plot.y(y, base[kept[k]]));
        upper += fmt::format("{}{} {}H{}", k == 0 ? "M" : "L", at_x, top_y, until_x);
        lower.push_back(fmt::format("L{} {}H{}", until_x, base_y, at_x));
      }
      std::reverse(lower.begin(), lower.end());
      areas += fmt::format("<path class=\"area {}\" d=\"{}{}Z\"/>\n", colour_class(layer.colour), upper,
                           fmt::join(lower, ""));
      base = std::move(top);
    }
    std::string over;
    for (Series line : chart.lines) {
      line.x = chart.x;
      over += curve(plot, x, y, line, true);
    }
    return View{open_svg(width, height, chart.title) + draw_axes(plot, x, y, chart.x_label, chart.y_label) + areas +
                    over + draw_levels(plot, x, y, drawn, chart.points) + draw_points(plot, x, y, chart.points) +
                    "<g class=\"hover\"></g>\n</svg>\n",
                plot_json(plot, x, y)};
  });
  return open_figure("line", chart.title, legend, far_levels) + views.svg +
         fmt::format(R"(<script type="application/json">{{"xLabel":{},"stepped":true,"views":[{}],"series":[{}]}})"
                     "</script>\n</figure>\n",
                     json_string(chart.x_label), views.json, data);
}

}  // namespace heddle::observe
