#include "heddle/observe/report.h"

#include <fmt/format.h>

#include <algorithm>

#include "heddle/base/files/output_file.h"
#include "heddle/observe/charts/html.h"
#include "heddle/observe/charts/html_table.h"
#include "heddle/observe/charts/step_curves.h"
#include "heddle/observe/charts/svg_chart.h"
#include "heddle/observe/experts/expert_charts.h"
#include "heddle/observe/report_cards.h"
#include "heddle/observe/units.h"

namespace heddle::observe {
namespace {

constexpr int kHalfWidth = 560, kFullWidth = 1140;
constexpr size_t kMostPeakTensors = 16;

// Two charts a row; where their number is odd the first has a row for itself.
std::string in_pairs(std::vector<LineChart> charts) {
  std::erase_if(charts, [](const LineChart& chart) { return line_chart(chart).empty(); });
  std::string panels;
  for (size_t i = 0; i < charts.size(); ++i) {
    const bool wide = i == 0 && charts.size() % 2 == 1;
    charts[i].width = wide ? kFullWidth : kHalfWidth;
    panels += panel(line_chart(charts[i]), wide);
  }
  return panels;
}

std::string learning(const ReportData& data) {
  std::vector<LineChart> charts = charts_of(data.steps, FigureChart::Section::learning);
  std::string loss;
  if (!charts.empty() && charts[0].title == figures::kLossChart.title) {
    charts[0].width = kFullWidth;
    charts[0].height = 330;
    if (data.unigram_entropy) charts[0].levels.push_back({"unigram entropy", *data.unigram_entropy});
    loss = panel(line_chart(charts[0]), true);
    charts.erase(charts.begin());
  }
  return loss + in_pairs(std::move(charts));
}

std::string speed(const ReportData& data) { return in_pairs(charts_of(data.steps, FigureChart::Section::speed)); }

std::string facts_table(const std::string& caption, const Facts& facts) {
  if (facts.empty()) return "";
  std::string text = fmt::format("<table><caption>{}</caption>\n", caption);
  for (const auto& [name, value] : facts) {
    text += fmt::format("<tr><td class=\"key\">{}</td><td class=\"mono\">{}</td></tr>\n", escape_breakable(name),
                        escape_html(value));
  }
  return text + "</table>\n";
}

// Settings that were made stand first. Defaults are folded: they are as in any run, and a printed page leaves them
// out.
std::string setup(const ReportData& data) {
  std::string text = facts_table("Configuration: keys that are not at their default", data.configuration);
  if (data.defaults.empty()) return text;
  return text +
         fmt::format("<details class=\"defaults\"><summary>{} keys at their defaults</summary>\n{}</details>\n",
                     data.defaults.size(), facts_table("Defaults", data.defaults));
}

std::string experts(const ReportData& data) {
  std::string text = load_maps(data.steps, data.expert_layers, data.expert_note) +
                     in_pairs(charts_of(data.steps, FigureChart::Section::experts)) +
                     rank_maps(data.steps, data.expert_layers) +
                     in_pairs(charts_of(data.steps, FigureChart::Section::copies));
  for (const FigureGroup* group : figures::kGroups)
    text += panel(facts_table(fmt::format("{}, in all steps", group->title), facts_of(data.figures, group)), false);
  return text;
}

std::string ranks(const RankSpeeds& speeds) {
  if (speeds.rows.empty()) return "";
  HeatMap map;
  map.title = "Work of each rank ÷ that of ranks that do the same";
  map.ratio_word = "over others";
  map.most = 1.5;
  map.x_label =
      fmt::format("windows of steps, {} to {}", speeds.windows.front().first, speeds.windows.back().second);
  map.row_word = "work";
  map.column_word = "window";
  map.rows = speeds.rows;
  map.ratio = speeds.ratio;
  return panel(heat_map(map), true);
}

std::string peak_table(const ReportData& data) {
  if (data.peak_tensors.empty()) return "";
  std::vector<const PeakTensor*> largest;
  double total_bytes = 0;
  for (const PeakTensor& tensor : data.peak_tensors) {
    largest.push_back(&tensor);
    total_bytes += tensor.bytes;
  }
  std::stable_sort(largest.begin(), largest.end(),
                   [](const PeakTensor* a, const PeakTensor* b) { return a->bytes > b->bytes; });
  const size_t hidden = largest.size() - std::min(largest.size(), kMostPeakTensors);
  largest.resize(largest.size() - hidden);
  HtmlTable table;
  table.caption =
      fmt::format("Tensors at the peak{}, as predicted", data.peak_of.empty() ? "" : " of " + data.peak_of);
  table.columns = {{"tensor", false, true}, {"type"},       {"shape", false, true}, {"role"}, {"layout"},
                   {"bytes", true},         {"share", true}};
  const auto share = [&](double bytes) {
    return fmt::format("{:.1f} %", total_bytes > 0 ? 100 * bytes / total_bytes : 0);
  };
  double shown_bytes = 0;
  for (const PeakTensor* t : largest) {
    shown_bytes += t->bytes;
    table.rows.push_back({t->name, t->dtype, t->shape, t->role, t->layout, bytes_text(t->bytes), share(t->bytes)});
  }
  if (const double rest = total_bytes - shown_bytes; hidden > 0)
    table.rows.push_back({fmt::format("{} smaller ones", hidden), "", "", "", "", bytes_text(rest), share(rest)});
  table.rows.push_back({"together", "", "", "", "", bytes_text(total_bytes), share(total_bytes)});
  return table.html();
}

std::string memory(const ReportData& data) {
  std::string panels;
  for (const MemoryView& view : data.memory) panels += panel(memory_figure(view), true);
  return panels + panel(peak_table(data), true);
}

std::string pipeline(const ReportData& data) {
  std::string panels;
  for (const PipelineView& view : data.pipeline) {
    Lanes ranks;
    ranks.title = view.title;
    ranks.note = view.note;
    ranks.timeline = &view.timeline;
    ranks.kind_word = "chunk";
    ranks.until_us = view.until_us;
    panels += panel(lanes(ranks), true);
  }
  return panels;
}

std::string samples(const ReportData& data) {
  std::string panels;
  for (const SampleText& sample : data.samples) {
    panels += panel(
        fmt::format("<div class=\"sample-head\">step {}</div><div class=\"sample\"><span class=\"prompt\">{}</span>"
                    "<span class=\"said\">{}</span></div>\n",
                    sample.step, escape_html(sample.prompt), escape_html(sample.continuation)),
        true);
  }
  return panels;
}

}  // namespace

std::string report_html(const ReportData& data) {
  Page page;
  page.brand = "Heddle · training report";
  page.title = data.run_name.empty() ? "training run" : data.run_name;
  page.subtitle = data.subtitle;
  if (!data.model.empty()) {
    page.head += "<ul class=\"chips\">\n";
    for (const auto& [key, value] : data.model) {
      page.head += fmt::format("<li><span>{}</span>{}</li>\n", escape_html(key), escape_html(value));
    }
    page.head += "</ul>\n";
  }
  page.head += cards_html(data);
  if (data.figures.step > 0) page.figures_json = json_of(data.figures);
  Lanes streams;
  streams.title = data.timeline_title.empty() ? "Streams over one step" : data.timeline_title;
  streams.timeline = &data.timeline;
  Facts run = data.environment;
  for (auto& fact : facts_of(data.figures, nullptr)) run.push_back(std::move(fact));
  page.add_section("run", "The run", panel(facts_table("Where, when and how", run), false));
  page.add_section("learning", "Learning", learning(data));
  page.add_section("speed", "Speed", speed(data));
  page.add_section("experts", "Experts", experts(data));
  page.add_section("ranks", "Ranks", ranks(data.ranks));
  page.add_section("memory", "Memory", memory(data));
  page.add_section("pipeline", "Pipeline: measured, and predicted from the ops' own times", pipeline(data));
  page.add_section("timeline", "Timeline", panel(lanes(streams), true));
  page.add_section("samples", "What it writes", samples(data));
  page.add_section("setup", "Setup", panel(setup(data), false));
  return page_html(page);
}

void write_report(const std::string& path, const ReportData& data) {
  // It is written again and again, and can be made anew: not worth a wait for the disk.
  write_file(path, report_html(data), OutputFile::Flush::to_system);
}

}  // namespace heddle::observe
