// The heat map: one path a shade, so that 61 layers of 256 experts stay a few hundred kilobytes.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "heddle/observe/charts/html.h"
#include "heddle/observe/charts/svg_chart.h"
#include "heddle/observe/table.h"

namespace heddle::observe {
namespace {

constexpr int kShades = 11;  // h0 the least or less, h5 even, h10 the most or more

int shade_of(double ratio, double most) {
  if (ratio <= 0) return 0;
  const double share = std::clamp(std::log(ratio) / std::log(most), -1.0, 1.0);
  return static_cast<int>(std::lround((share + 1) / 2 * (kShades - 1)));
}

std::string scale_key(double most) {
  std::string key =
      fmt::format("<span class=\"scale\"><span>{}×</span>", most == 4 ? "¼" : fmt::format("{:.2g}", 1 / most));
  for (int shade = 0; shade < kShades; ++shade) key += fmt::format("<i class=\"h{}\"></i>", shade);
  return key + fmt::format("<span>{:.2g}×</span></span>", most);
}

View draw(const HeatMap& chart, size_t columns, int width) {
  const size_t rows = chart.ratio.size();
  int widest = 0;
  for (const std::string& label : chart.rows) widest = std::max(widest, display_width(label));
  const double left = std::clamp(widest * 6.3 + 14, 34.0, std::min(220.0, 0.4 * width)), top = 4,
               right = width - 12.0;
  const double cell_width = (right - left) / static_cast<double>(columns);
  const double cell_height = std::clamp(320.0 / static_cast<double>(rows), 5.0, 26.0);
  const double bottom = top + cell_height * static_cast<double>(rows);
  // A hairline between cells, as long as there is room for it.
  const double gap_x = cell_width > 5 ? 1 : 0, gap_y = cell_height > 5 ? 1 : 0;

  std::array<std::string, kShades> paths;
  for (size_t r = 0; r < rows; ++r) {
    for (size_t c = 0; c < chart.ratio[r].size(); ++c) {
      const double ratio = chart.ratio[r][c];
      if (!std::isfinite(ratio)) continue;
      // Cells are drawn from edges rounded alike, so that neighbours meet without a seam.
      const double x0 = std::round((left + cell_width * static_cast<double>(c)) * 10) / 10;
      const double x1 = std::round((left + cell_width * static_cast<double>(c + 1)) * 10) / 10;
      paths[shade_of(ratio, chart.most)] +=
          fmt::format("M{} {}h{}v{}H{}z", coordinate(x0), coordinate(top + cell_height * static_cast<double>(r)),
                      coordinate(x1 - x0 - gap_x), coordinate(cell_height - gap_y), coordinate(x0));
    }
  }
  std::string svg = open_svg(width, bottom + 40, chart.title);
  const bool crisp = gap_x == 0;
  for (int shade = 0; shade < kShades; ++shade) {
    if (!paths[shade].empty()) {
      svg += fmt::format("<path class=\"h{}\"{} d=\"{}\"/>\n", shade,
                         crisp ? " shape-rendering=\"crispEdges\"" : "", paths[shade]);
    }
  }
  double free_from = -1e9;
  for (size_t r = 0; r < rows && r < chart.rows.size(); ++r) {
    const double middle = top + cell_height * (static_cast<double>(r) + 0.5);
    if (middle - 6 < free_from) continue;
    free_from = middle + 6;
    svg += fmt::format("<text class=\"tick\" x=\"{}\" y=\"{}\" dy=\"0.35em\" text-anchor=\"end\">{}</text>\n",
                       coordinate(left - 8), coordinate(middle),
                       escape_html(cut_to_width(chart.rows[r], static_cast<int>((left - 10) / 6.3))));
  }
  // Whole numbers of experts under the middle of their cells.
  const auto step = static_cast<size_t>(std::max(1.0, std::exp2(std::ceil(std::log2(36.0 / cell_width)))));
  for (size_t c = 0; c < columns; c += step) {
    svg += fmt::format("<text class=\"tick\" x=\"{}\" y=\"{}\" text-anchor=\"middle\">{}</text>\n",
                       coordinate(left + cell_width * (static_cast<double>(c) + 0.5)), coordinate(bottom + 16), c);
  }
  svg += fmt::format("<text class=\"axis-label\" x=\"{}\" y=\"{}\" text-anchor=\"middle\">{}</text>\n",
                     coordinate((left + right) / 2), coordinate(bottom + 33), escape_html(chart.x_label));
  return {svg + "<g class=\"hover\"></g>\n</svg>\n",
          fmt::format("\"plot\":[{},{},{},{}]", coordinate(left), coordinate(top), coordinate(right),
                      coordinate(bottom))};
}

std::string json_of(const HeatMap::Ratio& ratio) {
  std::string data = "[";
  for (size_t r = 0; r < ratio.size(); ++r) {
    data += r == 0 ? "[" : ",[";
    for (size_t c = 0; c < ratio[r].size(); ++c) {
      const double value = ratio[r][c];
      data += fmt::format("{}{}", c == 0 ? "" : ",", std::isfinite(value) ? fmt::format("{:.4g}", value) : "null");
    }
    data += ']';
  }
  return data + "]";
}

}  // namespace

std::string heat_map(const HeatMap& chart) {
  size_t columns = 0;
  for (const std::vector<double>& row : chart.ratio) columns = std::max(columns, row.size());
  if (columns == 0) return "";
  std::string names = "[", frames;
  for (const auto& [label, ratio] : chart.frames)
    frames += fmt::format("{}{{\"label\":{},\"ratio\":{}}}", frames.empty() ? "" : ",", json_string(label),
                          json_of(ratio));
  for (const std::string& row : chart.rows)
    names += fmt::format("{}{}", names.size() > 1 ? "," : "", json_string(row));
  const std::string title = chart.frames.empty() ? chart.title : chart.title + " " + chart.frames.back().first;
  std::string figure = open_figure("heat", title, {}, chart.note);
  figure.insert(figure.rfind("</figcaption>"), scale_key(chart.most));
  const Views views = views_of(chart.width, 0, [&](int width, int) { return draw(chart, columns, width); });
  return figure + views.svg +
         fmt::format(
             "<script type=\"application/json\">{{\"views\":[{}],\"columns\":{},\"rowWord\":{},\"columnWord\":{},"
             "\"ratioWord\":{},\"rows\":{}],\"most\":{},\"title\":{},\"frames\":[{}],\"ratio\":{}}}</script>\n</"
             "figure>\n",
             views.json, columns, json_string(chart.row_word), json_string(chart.column_word),
             json_string(chart.ratio_word), names, chart.most, json_string(chart.title), frames,
             json_of(chart.ratio));
}

}  // namespace heddle::observe
