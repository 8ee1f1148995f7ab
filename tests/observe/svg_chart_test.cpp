// Axes and charts: golden small figures, gaps, huge values, thinning.
#include "heddle/observe/charts/svg_chart.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "heddle/base/error.h"
#include "heddle/observe/charts/html.h"
#include "tests/observe/synthetic_run.h"

namespace heddle::observe {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

std::string labels(const Axis& axis) {
  std::string text;
  for (const Tick& tick : axis.ticks) text += fmt::format("{}{}", text.empty() ? "" : "|", tick.label);
  return text;
}

int occurrences_svg_chart(const std::string& text, const std::string& what) {
  int count = 0;
  for (size_t at = 0; (at = text.find(what, at)) != std::string::npos; ++at) ++count;
  return count;
}

constexpr int kDrawings = 3;  // of a figure, for as many widths of the page

// The JSON that goes with a figure must parse.
nlohmann::json data_of(const std::string& figure) {
  const std::string open = "<script type=\"application/json\">";
  const size_t begin = figure.find(open) + open.size();
  return nlohmann::json::parse(figure.substr(begin, figure.find("</script>", begin) - begin));
}

TEST(SvgAxis, RoundTicksInOneUnit) {
  EXPECT_EQ(labels(make_axis({0, 0.93})), "0|0.2|0.4|0.6|0.8|1");
  EXPECT_EQ(labels(make_axis({0, 61000, AxisScale::linear, AxisUnit::count})),
            "0|10 K|20 K|30 K|40 K|50 K|60 K|70 K");
  EXPECT_EQ(labels(make_axis({0, 6.2 * (1 << 30), AxisScale::linear, AxisUnit::bytes})),
            "0|1 GiB|2 GiB|3 GiB|4 GiB|5 GiB|6 GiB|7 GiB");
  EXPECT_EQ(labels(make_axis({0, 1.5e6, AxisScale::linear, AxisUnit::microseconds})),
            "0|0.2 s|0.4 s|0.6 s|0.8 s|1 s|1.2 s|1.4 s|1.6 s");
  EXPECT_EQ(labels(make_axis({-0.3, 0.3, AxisScale::linear, AxisUnit::plain, 6})), "-0.3|-0.2|-0.1|0|0.1|0.2|0.3");
  EXPECT_EQ(labels(make_axis({0, 4e-5})), "0|1e-5|2e-5|3e-5|4e-5");
}

TEST(SvgAxis, Logarithms) {
  const Axis axis = make_axis({0.02, 700, AxisScale::log});
  EXPECT_EQ(labels(axis), "0.01|0.1|1|10|100|1000");
  EXPECT_NEAR(axis.position(1), 0.4, 1e-12);
  EXPECT_TRUE(std::isnan(axis.position(0)));
  EXPECT_TRUE(std::isnan(axis.position(-1)));
  EXPECT_EQ(labels(make_axis({2, 60, AxisScale::log})), "1|2|5|10|20|50|100");
  EXPECT_EQ(make_axis({0, 5, AxisScale::log}).scale, AxisScale::linear);
}

TEST(SvgAxis, OddRanges) {
  for (const auto& [low, high] : std::vector<std::pair<double, double>>{{5, 5},
                                                                        {0, 0},
                                                                        {1e18, 1e18},
                                                                        {kNan, 1},
                                                                        {0, kInf},
                                                                        {3, 2},
                                                                        {-1e300, 1e300},
                                                                        {-1e200, 1e200},
                                                                        {1e-300, 2e-300}}) {
    const Axis axis = make_axis({low, high});
    EXPECT_LT(axis.low, axis.high) << low << " " << high;
    EXPECT_GE(axis.ticks.size(), 2u) << low << " " << high;
    EXPECT_LE(axis.ticks.size(), 20u) << low << " " << high;
  }
}

RC_GTEST_PROP(SvgAxis, TicksLieInsideAndAscend, ()) {
  const double low = *rc::gen::inRange(-1'000'000, 1'000'000) * std::pow(10.0, *rc::gen::inRange(-12, 12));
  const double high = low + *rc::gen::inRange(1, 1'000'000) * std::pow(10.0, *rc::gen::inRange(-12, 12));
  const auto unit = static_cast<AxisUnit>(*rc::gen::inRange(0, 4));
  const Axis axis = make_axis({low, high, AxisScale::linear, unit});
  const double slack = (high - low) * 1e-8 + std::abs(low) * 1e-9;
  RC_ASSERT(axis.low <= low + slack && axis.high >= high - slack);
  RC_ASSERT(axis.ticks.size() <= 20u);
  for (size_t i = 1; i < axis.ticks.size(); ++i) RC_ASSERT(axis.ticks[i - 1].value < axis.ticks[i].value);
}

TEST(LineChartSvg, GoldenFigure) {
  LineChart chart;
  chart.title = "Loss";
  chart.x_label = "step";
  chart.series = {{"lm", {0, 1, 2}, {4, 2, 0}, 0, Mark::line}};
  chart.width = 200;
  chart.height = 100;
  const std::string text = line_chart(chart);
  const size_t wide_ends = text.find("</svg>\n") + 7;
  EXPECT_EQ(
      text.substr(0, wide_ends),
      "<figure class=\"chart\" data-kind=\"line\">\n"
      "<figcaption><span class=\"title\">Loss</span><span class=\"legend\"><span><i class=\"swatch "
      "c0\"></i>lm</span>"
      "</span></figcaption>\n"
      "<svg class=\"for-wide\" viewBox=\"0 0 200 100\" role=\"img\" aria-label=\"Loss\" "
      "preserveAspectRatio=\"xMidYMid meet\">\n"
      "<line class=\"grid\" x1=\"34\" x2=\"188\" y1=\"60\" y2=\"60\"/><text class=\"tick\" x=\"26\" y=\"60\" "
      "dy=\"0.35em\" text-anchor=\"end\">0</text>\n"
      "<line class=\"grid\" x1=\"34\" x2=\"188\" y1=\"35\" y2=\"35\"/><text class=\"tick\" x=\"26\" y=\"35\" "
      "dy=\"0.35em\" text-anchor=\"end\">2</text>\n"
      "<line class=\"grid\" x1=\"34\" x2=\"188\" y1=\"10\" y2=\"10\"/><text class=\"tick\" x=\"26\" y=\"10\" "
      "dy=\"0.35em\" text-anchor=\"end\">4</text>\n"
      "<line class=\"axis\" x1=\"34\" x2=\"188\" y1=\"60\" y2=\"60\"/>\n"
      "<line class=\"axis\" x1=\"34\" x2=\"34\" y1=\"60\" y2=\"64\"/><text class=\"tick\" x=\"34\" y=\"76\" "
      "text-anchor=\"middle\">0</text>\n"
      "<line class=\"axis\" x1=\"111\" x2=\"111\" y1=\"60\" y2=\"64\"/><text class=\"tick\" x=\"111\" y=\"76\" "
      "text-anchor=\"middle\">1</text>\n"
      "<line class=\"axis\" x1=\"188\" x2=\"188\" y1=\"60\" y2=\"64\"/><text class=\"tick\" x=\"188\" y=\"76\" "
      "text-anchor=\"middle\">2</text>\n"
      "<text class=\"axis-label\" x=\"111\" y=\"93\" text-anchor=\"middle\">step</text>\n"
      "<path class=\"line c0\" d=\"M34 10L111 35L188 60\"/>\n"
      "<g class=\"hover\"></g>\n</svg>\n");
  EXPECT_NE(text.find("<svg class=\"for-middle\" viewBox=\"0 0 720 100\""), std::string::npos);
  EXPECT_NE(text.find("<svg class=\"for-narrow\" viewBox=\"0 0 360 100\""), std::string::npos);
  const nlohmann::json data = data_of(text);
  EXPECT_EQ(data["views"][0].dump(), R"({"plot":[34,10,188,60],"x":{"high":2,"log":false,"low":0,"unit":0},)"
                                     R"("y":{"high":4,"log":false,"low":0,"unit":0}})");
  EXPECT_EQ(data["views"].size(), 3u) << "what the pointer meets is told of each drawing";
  EXPECT_EQ(data["series"].dump(), R"([{"colour":"c0","label":"lm","x":[0,1,2],"y":[4,2,0]}])");
}

TEST(LineChartSvg, SaysWhatItsNumbersAreOf) {
  LineChart chart;
  chart.y_label = "nats a token";
  chart.series = {{"lm", {0, 1, 2}, {4, 2, 0}, 0, Mark::line}};
  EXPECT_EQ(occurrences_svg_chart(line_chart(chart), ">nats a token</text>"), kDrawings);
}

TEST(LineChartSvg, WhatIsNoNumberLeavesAGap) {
  for (const double broken : {kNan, kInf, -kInf, 1e250}) {
    LineChart chart;
    chart.series = {{"lm", {0, 1, 2, 3, 4, 5}, {4, 3, broken, 2, 1, 1}, 0, Mark::line}};
    const std::string text = line_chart(chart);
    const size_t path = text.find("class=\"line c0\" d=\"");
    ASSERT_NE(path, std::string::npos);
    EXPECT_EQ(occurrences_svg_chart(text.substr(path, text.find("/>", path) - path), "M"), 2) << broken;
    EXPECT_EQ(text.find("nan"), std::string::npos);
    EXPECT_EQ(text.find("inf"), std::string::npos);
    EXPECT_NO_THROW(data_of(text));
  }
  LineChart lonely;
  lonely.series = {{"lm", {0, 1, 2}, {kNan, 3, kNan}, 0, Mark::line}};
  EXPECT_EQ(occurrences_svg_chart(line_chart(lonely), "<circle class=\"point c0\""), kDrawings)
      << "one point alone is a dot";
  LineChart log;
  log.y_scale = AxisScale::log;
  log.series = {{"lm", {0, 1, 2, 3}, {10, 0, 1000, 1}, 0, Mark::line}};
  EXPECT_NE(line_chart(log).find("<path"), std::string::npos);
}

TEST(LineChartSvg, NothingToDrawIsNoFigure) {
  EXPECT_EQ(line_chart({}), "");
  LineChart chart;
  chart.series = {{"lm", {0, 1}, {kNan, kInf}, 0, Mark::line}};
  EXPECT_EQ(line_chart(chart), "");
  chart.series[0].x.pop_back();
  EXPECT_THROW(line_chart(chart), InternalError);
}

TEST(LineChartSvg, EscapesItsText) {
  LineChart chart;
  chart.title = "<script>alert(1)</script>";
  chart.x_label = "a&b";
  chart.series = {{"</script><b>\"x\"", {0, 1}, {0, 1}, 0, Mark::line}};
  chart.levels = {{"<i>", 0.5}};
  const std::string text = line_chart(chart);
  EXPECT_EQ(occurrences_svg_chart(text, "<script"), 1) << "only the figure's own data";
  EXPECT_EQ(occurrences_svg_chart(text, "</script"), 1);
  EXPECT_EQ(text.find("<b>"), std::string::npos);
  EXPECT_EQ(text.find("<i>"), std::string::npos);
  EXPECT_EQ(data_of(text)["series"][0]["label"], "</script><b>\"x\"");
}

TEST(LineChartSvg, ALongCurveKeepsItsPeaksAndStaysSmall) {
  LineChart chart;
  chart.series = {{"lm", {}, {}, 0, Mark::line}};
  for (int i = 0; i < 300'000; ++i) {
    chart.series[0].x.push_back(i);
    chart.series[0].y.push_back(i == 123'456 ? 100 : i == 200'001 ? kNan : std::sin(i * 0.01));
  }
  const std::string text = line_chart(chart);
  EXPECT_LT(text.size(), 200'000u);
  const std::vector<size_t> kept = thin_indices(chart.series[0].x, chart.series[0].y, 0, 299'999, 500);
  EXPECT_LE(kept.size(), 2020u);
  EXPECT_TRUE(std::binary_search(kept.begin(), kept.end(), 123'456u)) << "the peak";
  EXPECT_TRUE(std::binary_search(kept.begin(), kept.end(), 200'001u)) << "the gap";
  EXPECT_TRUE(std::is_sorted(kept.begin(), kept.end()));
}

TEST(StackedAreaSvg, StacksAndTellsOfAFarCapacity) {
  StackedArea chart;
  chart.title = "Memory";
  chart.x = {0, 1, 2};
  chart.layers = {{"weights", {}, {100, 100, 100}, 0, Mark::line},
                  {"activations", {}, {0, 300, kNan}, 1, Mark::line}};
  chart.lines = {{"reserved", {}, {400, 400, 400}, kInkColour, Mark::line}};
  chart.levels = {{"capacity", 8.0 * (1 << 30)}};
  const std::string text = stacked_area(chart);
  EXPECT_EQ(occurrences_svg_chart(text, "class=\"area "), 2 * kDrawings);
  EXPECT_EQ(occurrences_svg_chart(text, "class=\"line ink\""), kDrawings);
  EXPECT_EQ(occurrences_svg_chart(text, "class=\"level\""), 0);
  EXPECT_NE(text.find("capacity 8.0 GiB"), std::string::npos);
  EXPECT_EQ(data_of(text)["series"].size(), 3u);
  EXPECT_EQ(stacked_area({}), "");
  chart.layers[0].y.pop_back();
  EXPECT_THROW(stacked_area(chart), InternalError);
}

TEST(HeatMapSvg, ShadesByTheLogarithm) {
  HeatMap map;
  map.title = "load";
  map.rows = {"a<b"};
  map.ratio = {{0, 0.25, 1, 1, 4, 1e9, kNan}, {1}};
  const std::string text = heat_map(map);
  const auto cells = [&](const std::string& shade) {
    const size_t path = text.find("<path class=\"" + shade + "\"");
    return path == std::string::npos ? 0
                                     : occurrences_svg_chart(text.substr(path, text.find("/>", path) - path), "M");
  };
  EXPECT_EQ(cells("h0"), 2) << "none and a quarter";
  EXPECT_EQ(cells("h5"), 3) << "even";
  EXPECT_EQ(cells("h10"), 2) << "fourfold and more";
  EXPECT_EQ(occurrences_svg_chart(text, "<path"), 3 * kDrawings);
  EXPECT_NE(text.find("a&lt;b"), std::string::npos);
  EXPECT_TRUE(data_of(text)["ratio"][0][6].is_null());
  EXPECT_EQ(heat_map({}), "");
}

TEST(HeatMapSvg, LargeModelStaysSmall) {
  HeatMap map;
  SyntheticNoise noise;
  for (int layer = 0; layer < 61; ++layer) {
    map.rows.push_back(std::to_string(layer));
    map.ratio.emplace_back();
    for (int expert = 0; expert < 256; ++expert) map.ratio.back().push_back(std::exp(noise.next()));
  }
  EXPECT_LT(heat_map(map).size(), 1'400'000u);
}

TEST(LanesSvg, DrawsEveryStreamOnce) {
  const Timeline timeline = synthetic_timeline(2, 2, 1);
  const std::string text = lanes({"step", &timeline});
  EXPECT_EQ(occurrences_svg_chart(text, "class=\"lane\""), 6);
  const nlohmann::json data = data_of(text);
  EXPECT_EQ(data["spans"].size(), 10 * timeline.spans.size());
  EXPECT_EQ(data["lanes"][0], "rank 0 · compute");
  Timeline empty;
  EXPECT_EQ(lanes({"step", &empty}), "");
  EXPECT_EQ(lanes({}), "");
}

TEST(LanesSvg, ManySpansAreJoinedAndBounded) {
  Timeline timeline;
  const uint32_t name = timeline.intern("</script>"), track = timeline.track(0, "compute");
  for (int i = 0; i < 60'000; ++i) {
    timeline.spans.push_back({name, name, track, i * 10.0, i * 10.0 + 9, SpanPhase::F});
  }
  const std::string text = lanes({"step", &timeline});
  EXPECT_EQ(occurrences_svg_chart(text, "class=\"p0\" d="), 1);
  EXPECT_LT(text.find("</svg>"), 10'000u) << "one bar, not sixty thousand";
  EXPECT_EQ(data_of(text)["spans"].size(), 10u * 30'000);
  EXPECT_NE(text.find("30000 longest of 60000"), std::string::npos);
  EXPECT_EQ(occurrences_svg_chart(text, "</script>"), 1);
}

TEST(LanesSvg, TwoAtOnceHaveAHalfEach) {
  Timeline timeline;
  const uint32_t name = timeline.intern("F0"), track = timeline.track(0, "");
  for (const SpanHalf half : {SpanHalf::upper, SpanHalf::lower}) {
    Span span{name, name, track, 0, 10, half == SpanHalf::upper ? SpanPhase::F : SpanPhase::both};
    span.half = half;
    timeline.spans.push_back(span);
  }
  const std::string text = lanes({"step", &timeline, "chunk", "a note", 20});
  EXPECT_EQ(occurrences_svg_chart(text, "v7.5h"), 2) << text;
  EXPECT_NE(text.find("a note"), std::string::npos);
  EXPECT_NE(text.find(">rank 0<"), std::string::npos);
  EXPECT_EQ(data_of(text)["length"], 20);
}

TEST(LanesSvg, ZeroLengthAndLateSteps) {
  Timeline timeline;
  const uint32_t name = timeline.intern("x"), track = timeline.track(3, "compute");
  timeline.spans.push_back({name, name, track, 5e9, 5e9, SpanPhase::F});
  const std::string text = lanes({"step", &timeline});
  EXPECT_EQ(text.find("nan"), std::string::npos);
  EXPECT_EQ(data_of(text)["spans"][1], 0) << "time is told from the step's start";
}

TEST(Html, Escapes) {
  EXPECT_EQ(escape_html("<a href=\"x\">'&\n\t\x01\x7f"), "&lt;a href=&quot;x&quot;&gt;&#39;&amp;\n\t");
  EXPECT_EQ(escape_html("é漢🙂"), "é漢🙂");
  EXPECT_EQ(escape_html("a\xff\xc0\xaf\xed\xa0\x80z"), "a\ufffd\ufffd\ufffd\ufffd\ufffd\ufffdz");
  EXPECT_EQ(json_string("\"\\</script>\n\u2028"), "\"\\u0022\\u005c\\u003c/script\\u003e\\u000a\\u2028\"");
}

RC_GTEST_PROP(Html, NothingBreaksOut, (const std::string& text)) {
  const std::string html = escape_html(text);
  RC_ASSERT(html.find_first_of("<>\"'") == std::string::npos);
  const std::string json = json_string(text);
  RC_ASSERT(json.find('<') == std::string::npos);
  RC_ASSERT(nlohmann::json::accept(json));
}

}  // namespace
}  // namespace heddle::observe
