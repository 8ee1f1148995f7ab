#include "heddle/observe/memory/memory_figure.h"

#include <fmt/format.h>

#include <algorithm>

#include "heddle/observe/charts/html.h"
#include "heddle/observe/charts/html_table.h"
#include "heddle/observe/memory/memory_words.h"
#include "heddle/observe/units.h"

namespace heddle::observe {

namespace {

using simulate::MemoryKind;

// Neighbours in the stack differ in lightness, what persists is cold, what comes and goes is warm.
constexpr std::array<int, simulate::kMemoryKinds> kColours = {0, 6, 3, 7, 2, 1, 5, 4, 8, 9, 10};

constexpr size_t kMostDrawn = 1200;  // no picture is wider

}  // namespace

std::string memory_figure(const MemoryView& view) {
  const simulate::MemoryCurve curve = thinned(view.curve, kMostDrawn);
  if (curve.at_us.empty() || curve.peak.bytes <= 0) return "";
  StackedArea chart;
  chart.title = memory_name(curve.space) + (view.title.empty() ? "" : ": " + view.title);
  chart.x_label = view.time_label;
  chart.x = curve.at_us;
  chart.levels = view.levels;
  for (size_t k = 0; k < simulate::kMemoryKinds; ++k) {
    Series layer{std::string(word_of(static_cast<MemoryKind>(k))), {}, {}, kColours[k], Mark::line};
    for (const simulate::BytesOfKinds& kinds : curve.bytes) layer.y.push_back(static_cast<double>(kinds[k]));
    if (std::any_of(layer.y.begin(), layer.y.end(), [](double bytes) { return bytes > 0; }))
      chart.layers.push_back(std::move(layer));
  }
  // The last place holds until the end.
  if (curve.until_us > chart.x.back()) {
    chart.x.push_back(curve.until_us);
    for (Series& layer : chart.layers) layer.y.push_back(layer.y.back());
  }
  const auto peak = static_cast<double>(curve.peak.bytes);
  chart.points.push_back({"peak " + bytes_text(peak), curve.peak.at_us, peak});
  const std::string figure = stacked_area(chart);
  return figure.empty() ? ""
                        : fmt::format("{}<p class=\"explained\">{}</p>\n", figure, escape_html(peak_words(curve)));
}

std::string peak_values_table(const MemoryView& view) {
  HtmlTable table;
  table.caption = fmt::format("Transient values at the peak of {}: the largest",
                              view.curve.space == ir::Space::device ? "the device" : "the host");
  table.columns = {{"value", false, true}, {"role"}, {"microbatch", true}, {"bytes", true}, {"share", true}};
  for (const ir::Walk::Live& live : view.curve.peak.values) {
    table.rows.push_back({live.name, std::string(ir::name_of(live.role)),
                          live.microbatch < 0 ? "" : fmt::format("{}", live.microbatch),
                          bytes_text(static_cast<double>(live.bytes)),
                          fmt::format("{:.1f} %", 100 * static_cast<double>(live.bytes) /
                                                      static_cast<double>(view.curve.peak.bytes))});
  }
  return table.html();
}

}  // namespace heddle::observe
