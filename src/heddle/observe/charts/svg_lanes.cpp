// Lanes: the streams of one step. The SVG shows all spans joined to what its pixels can tell apart. The page's
// script draws the same from the JSON beside it on a canvas, to zoom into and to point at.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <numeric>

#include "heddle/observe/charts/html.h"
#include "heddle/observe/charts/svg_chart.h"
#include "heddle/observe/table.h"

namespace heddle::observe {
namespace {

constexpr size_t kMostLanes = 48;
constexpr size_t kMostSpans = 30'000;  // in the JSON; the longest ones
constexpr double kLane = 22, kBar = 16, kRankGap = 8;
constexpr int kPictureWidth = 760;  // width of the SVG, which is for paper; the canvas is as wide as the page

struct Lane {
  uint32_t track;
  std::string label;
  double top;
};

// A rank of a schedule has one lane, and no streams.
std::string label_of(const Track& track) {
  return track.stream.empty() ? fmt::format("rank {}", track.rank)
                              : fmt::format("{} · {}", track.rank, track.stream);
}

std::vector<Lane> order_lanes(const Timeline& timeline) {
  std::vector<bool> used(timeline.tracks.size(), false);
  for (const Span& span : timeline.spans) used[span.track] = true;
  std::vector<uint32_t> order;
  for (uint32_t t = 0; t < timeline.tracks.size(); ++t) {
    if (used[t]) order.push_back(t);
  }
  std::stable_sort(order.begin(), order.end(),
                   [&](uint32_t a, uint32_t b) { return timeline.tracks[a].rank < timeline.tracks[b].rank; });
  if (order.size() > kMostLanes) order.resize(kMostLanes);
  std::vector<Lane> lanes;
  double top = 4;
  for (size_t i = 0; i < order.size(); ++i) {
    const Track& track = timeline.tracks[order[i]];
    if (i > 0 && timeline.tracks[order[i - 1]].rank != track.rank && !track.stream.empty()) top += kRankGap;
    lanes.push_back({order[i], cut_to_width(label_of(track), 28), top});
    top += kLane;
  }
  return lanes;
}

// One rectangle for each run of spans of a phase with less than half a pixel between them; wider ones stay apart.
std::string draw_lane(const std::vector<const Span*>& spans, const Plot& plot, const Axis& x, double top,
                      SpanHalf half) {
  constexpr double kApart = 3;
  struct Bar {
    double from, to;
  };
  const double height = half == SpanHalf::whole ? kBar : kBar / 2 - 0.5;
  if (half == SpanHalf::lower) top += kBar / 2 + 0.5;
  std::array<std::vector<Bar>, kSpanPhases> bars;
  for (const Span* span : spans) {
    if (span->half != half) continue;
    const double from = plot.x(x, span->start_us);
    double to = plot.x(x, span->end_us);
    if (to - from > kApart) to -= 0.8;
    std::vector<Bar>& of_phase = bars[static_cast<size_t>(span->phase)];
    if (!of_phase.empty() && from - of_phase.back().to < 0.5) {
      of_phase.back().to = std::max(of_phase.back().to, to);
    } else {
      of_phase.push_back({from, to});
    }
  }
  std::string text;
  for (int phase = 0; phase < kSpanPhases; ++phase) {
    if (bars[phase].empty()) continue;
    std::string path;
    for (const Bar& bar : bars[phase]) {
      path += fmt::format("M{} {}h{:.2f}v{}h{:.2f}z", coordinate(bar.from), coordinate(top),
                          std::max(0.4, bar.to - bar.from), coordinate(height), -std::max(0.4, bar.to - bar.from));
    }
    text += fmt::format("<path class=\"p{}\" d=\"{}\"/>\n", phase, path);
  }
  return text;
}

}  // namespace

std::string lanes(const Lanes& chart) {
  if (!chart.timeline || chart.timeline->spans.empty()) return "";
  const Timeline& timeline = *chart.timeline;
  timeline.check();
  const std::vector<Lane> all_lanes = order_lanes(timeline);
  std::map<uint32_t, size_t> lane_of_track;
  for (size_t i = 0; i < all_lanes.size(); ++i) lane_of_track[all_lanes[i].track] = i;

  double start_us = timeline.spans[0].start_us, end_us = timeline.spans[0].end_us;
  std::vector<std::vector<const Span*>> of_lane(all_lanes.size());
  size_t shown_spans = 0;
  for (const Span& span : timeline.spans) {
    start_us = std::min(start_us, span.start_us);
    end_us = std::max(end_us, span.end_us);
    if (const auto lane = lane_of_track.find(span.track); lane != lane_of_track.end()) {
      of_lane[lane->second].push_back(&span);
      ++shown_spans;
    }
  }
  for (auto& spans : of_lane) {
    std::stable_sort(spans.begin(), spans.end(),
                     [](const Span* a, const Span* b) { return a->start_us < b->start_us; });
  }
  // Times count from the step's start.
  const double length_us = std::max({end_us - start_us, chart.until_us - start_us, 1e-3});
  const Axis x =
      make_axis({0, length_us, AxisScale::linear, AxisUnit::microseconds, kPictureWidth / 110, false, true});
  Axis from_start = x;
  from_start.low += start_us;
  from_start.high += start_us;
  int widest = 0;
  for (const Lane& lane : all_lanes) widest = std::max(widest, display_width(lane.label));
  const Plot plot{widest * 6.3 + 16, 4, kPictureWidth - 24.0, all_lanes.back().top + kLane};
  const double height = plot.bottom + 36;

  std::array<bool, kSpanPhases> has_phase{};
  for (const auto& spans : of_lane) {
    for (const Span* span : spans) has_phase[static_cast<size_t>(span->phase)] = true;
  }
  static constexpr std::array<const char*, kSpanPhases> phase_labels = {
      "forward", "input gradient", "weight gradient", "gather, reduce, update", "other", "backward (both)"};
  std::vector<LegendEntry> legend;
  for (int phase = 0; phase < kSpanPhases; ++phase) {
    if (has_phase[phase]) legend.push_back({phase_labels[phase], fmt::format("p{}", phase)});
  }
  std::string note = chart.note;
  if (!note.empty() && shown_spans > kMostSpans) note += "; ";
  if (shown_spans > kMostSpans) note += fmt::format("zoom shows the {} longest of {} ops", kMostSpans, shown_spans);
  const size_t hidden_lanes =
      static_cast<size_t>(std::count_if(timeline.spans.begin(), timeline.spans.end(),
                                        [&](const Span& s) { return !lane_of_track.contains(s.track); }));
  if (hidden_lanes > 0) {
    note += fmt::format("{}the first {} streams; {} ops on others are left out", note.empty() ? "" : "; ",
                        kMostLanes, hidden_lanes);
  }

  std::string text = open_figure("lanes", chart.title, legend, note);
  text += open_svg(kPictureWidth, height, chart.title);
  for (const Tick& tick : x.ticks) {
    const std::string at = coordinate(plot.x(x, tick.value));
    text += fmt::format("<line class=\"grid\" x1=\"{0}\" x2=\"{0}\" y1=\"{1}\" y2=\"{2}\"/>", at,
                        coordinate(plot.top), coordinate(plot.bottom));
    text += fmt::format("<text class=\"tick\" x=\"{}\" y=\"{}\" text-anchor=\"middle\">{}</text>\n", at,
                        coordinate(plot.bottom + 14), escape_html(tick.label));
  }
  text += fmt::format("<text class=\"axis-label\" x=\"{}\" y=\"{}\" text-anchor=\"middle\">time in step</text>\n",
                      coordinate((plot.left + plot.right) / 2), coordinate(plot.bottom + 31));
  for (size_t i = 0; i < all_lanes.size(); ++i) {
    const double top = all_lanes[i].top + (kLane - kBar) / 2;
    text +=
        fmt::format("<rect class=\"lane\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\"/>", coordinate(plot.left),
                    coordinate(top), coordinate(plot.right - plot.left), coordinate(kBar));
    text += fmt::format("<text class=\"tick\" x=\"{}\" y=\"{}\" dy=\"0.35em\" text-anchor=\"end\">{}</text>\n",
                        coordinate(plot.left - 8), coordinate(top + kBar / 2), escape_html(all_lanes[i].label));
    for (const SpanHalf half : {SpanHalf::whole, SpanHalf::upper, SpanHalf::lower})
      text += draw_lane(of_lane[i], plot, from_start, top, half);
  }
  text += "</svg>\n";

  std::vector<std::pair<size_t, const Span*>> listed;
  for (size_t i = 0; i < of_lane.size(); ++i) {
    for (const Span* span : of_lane[i]) listed.emplace_back(i, span);
  }
  if (listed.size() > kMostSpans) {
    std::nth_element(listed.begin(), listed.begin() + kMostSpans, listed.end(), [](const auto& a, const auto& b) {
      return a.second->end_us - a.second->start_us > b.second->end_us - b.second->start_us;
    });
    listed.resize(kMostSpans);
    std::stable_sort(listed.begin(), listed.end(), [](const auto& a, const auto& b) {
      return a.first != b.first ? a.first < b.first : a.second->start_us < b.second->start_us;
    });
  }
  std::map<uint32_t, size_t> name_number;
  std::string names, spans, tops, labels;
  const auto number_of = [&](uint32_t name) {
    const auto [where, is_new] = name_number.try_emplace(name, name_number.size());
    if (is_new) names += fmt::format("{}{}", names.empty() ? "" : ",", json_string(timeline.name(name)));
    return where->second;
  };
  for (const auto& [lane, span] : listed) {
    spans += fmt::format("{}{},{:.9g},{:.6g},{},{},{},{},{},{},{}", spans.empty() ? "" : ",", lane,
                         span->start_us - start_us, span->end_us - span->start_us, static_cast<int>(span->phase),
                         number_of(span->name), number_of(span->kind), span->stage, span->microbatch, span->layer,
                         static_cast<int>(span->half));
  }
  for (const Lane& lane : all_lanes) {
    tops += fmt::format("{}{}", tops.empty() ? "" : ",", coordinate(lane.top + (kLane - kBar) / 2));
    const Track& track = timeline.tracks[lane.track];
    labels +=
        fmt::format("{}{}", labels.empty() ? "" : ",",
                    json_string(track.stream.empty() ? label_of(track)
                                                     : fmt::format("rank {} · {}", track.rank, track.stream)));
  }
  text += fmt::format(
      "<script type=\"application/json\">{{\"size\":[{},{}],\"plot\":[{},{},{},{}],\"bar\":{},\"length\":{:.9g},"
      "\"kindWord\":{},\"title\":{},"
      "\"tops\":[{}],\"lanes\":[{}],\"names\":[{}],\"spans\":[{}]}}</script>\n</figure>\n",
      chart.width, coordinate(height), coordinate(plot.left), coordinate(plot.top), coordinate(chart.width - 24.0),
      coordinate(plot.bottom), coordinate(kBar), length_us, json_string(chart.kind_word), json_string(chart.title),
      tops, labels, names, spans);
  return text;
}

}  // namespace heddle::observe
