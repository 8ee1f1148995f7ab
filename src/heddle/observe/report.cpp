#include "heddle/observe/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <string_view>

#include "heddle/base/error.h"
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

LineChart step_chart(const ReportData& data, Figure figure, const std::string& title, const std::string& of,
                     AxisUnit unit, int colour, bool from_zero, bool noisy = true) {
  LineChart chart;
  chart.title = title;
  chart.x_label = "step";
  chart.y_label = of;
  chart.y_unit = unit;
  chart.from_zero = from_zero;
  Series series = series_of(data.steps, figure, title, colour);
  if (noisy) {
    add_noisy(chart.series, std::move(series));
    chart.y_scale = scale_for(chart.series);
  } else if (!series.y.empty()) {
    chart.series.push_back(std::move(series));
  }
  return chart;
}

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
  LineChart loss;
  loss.title = "Loss";
  loss.x_label = "step";
  loss.y_label = "nats a token";
  loss.width = kFullWidth;
  loss.height = 330;
  add_noisy(loss.series, series_of(data.steps, &StepMetrics::lm_loss, "language model", 0));
  add_noisy(loss.series, series_of(data.steps, &StepMetrics::mtp_loss, "multi-token prediction", 3));
  Series held_out = series_of(data.steps, &StepMetrics::held_out_loss, "held-out", 1, Mark::points);
  if (!held_out.y.empty()) loss.series.push_back(std::move(held_out));
  loss.y_scale = scale_for(loss.series);
  if (data.unigram_entropy) loss.levels.push_back({"unigram entropy", *data.unigram_entropy});
  return panel(line_chart(loss), true) + in_pairs({step_chart(data, &StepMetrics::learning_rate, "Learning rate",
                                                              "step size", AxisUnit::plain, 2, true, false),
                                                   step_chart(data, &StepMetrics::gradient_norm, "Gradient norm",
                                                              "before clipping", AxisUnit::plain, 4, true)});
}

std::string speed(const ReportData& data) {
  return in_pairs(
      {step_chart(data, &StepMetrics::tokens_per_s, "Tokens per second", "tok/s", AxisUnit::count, 2, true),
       step_chart(data, &StepMetrics::flops_per_s, "Model FLOP/s", "FLOP/s, recompute not counted", AxisUnit::count,
                  6, true)});
}

// The choices that found no place with their expert: each layer's part, or of many layers the mean and the most of one;
// nothing of a run without a capacity.
LineChart dropped_shares(const ReportData& data) {
  constexpr std::string_view kOfLayer = "dropped_share.layer_";
  constexpr size_t kMostLayers = 6;
  std::map<int, Series> of_layer;
  Series mean{.label = "mean of layers", .colour = 1}, most{.label = "the layer that drops most", .colour = 2};
  for (const StepMetrics& step : data.steps) {
    double sum = 0, worst = 0, layers = 0;
    for (auto at = step.extra.lower_bound(std::string(kOfLayer)); at != step.extra.end(); ++at) {
      if (!at->first.starts_with(kOfLayer)) break;
      const int layer = std::atoi(at->first.c_str() + kOfLayer.size());
      Series& series = of_layer[layer];
      series.label = fmt::format("layer {}", layer);
      series.x.push_back(static_cast<double>(step.step));
      series.y.push_back(at->second);
      sum += at->second;
      worst = std::max(worst, at->second);
      ++layers;
    }
    if (layers == 0) continue;
    for (const auto& [series, value] : {std::pair{&mean, sum / layers}, {&most, worst}}) {
      series->x.push_back(static_cast<double>(step.step));
      series->y.push_back(value);
    }
  }
  LineChart chart;
  chart.title = "Choices dropped: beyond their expert's capacity";
  chart.x_label = "step";
  chart.y_label = "part of the layer's choices";
  if (of_layer.size() > kMostLayers) {
    chart.series = {std::move(mean), std::move(most)};
  } else {
    int colour = 0;
    for (auto& [layer, series] : of_layer) {
      series.colour = ++colour;
      chart.series.push_back(std::move(series));
    }
  }
  return chart;
}

std::string facts_table(const std::string& caption, const Facts& facts) {
  if (facts.empty()) return "";
  std::string text = fmt::format("<table><caption>{}</caption>\n", caption);
  for (const auto& [name, value] : facts) {
    text += fmt::format("<tr><td class=\"key\">{}</td><td class=\"mono\">{}</td></tr>\n", escape_breakable(name),
                        escape_html(value));
  }
  return text + "</table>\n";
}

std::string experts(const ReportData& data) {
  LineChart imbalance = step_chart(data, &StepMetrics::expert_imbalance, "Imbalance: busiest expert ÷ mean",
                                   "rows ÷ mean, the worst layer", AxisUnit::plain, 1, false);
  imbalance.levels.push_back({"even load", 1});
  const LineChart balance = step_chart(data, &StepMetrics::auxiliary_loss, "Auxiliary (balance) loss",
                                       "nats a token", AxisUnit::plain, 5, false);
  return load_maps(data.steps, data.expert_layers) + in_pairs({imbalance, balance, dropped_shares(data)}) +
         copies_panels(data.steps, data.figures, data.expert_layers) +
         panel(facts_table("Experts that changed ranks, in all steps", moves_facts(data.figures)), false);
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
      fmt::format("Tensors at the peak{}, as foretold", data.peak_of.empty() ? "" : " of " + data.peak_of);
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
  page.add_section("run", "The run", panel(facts_table("Where, when and how", data.environment), false));
  page.add_section("learning", "Learning", learning(data));
  page.add_section("speed", "Speed", speed(data));
  page.add_section("experts", "Experts", experts(data));
  page.add_section("ranks", "Ranks", ranks(data.ranks));
  page.add_section("memory", "Memory", memory(data));
  page.add_section("pipeline", "Pipeline: measured, and foretold from the ops' own times", pipeline(data));
  page.add_section("timeline", "Timeline", panel(lanes(streams), true));
  page.add_section("samples", "What it writes", samples(data));
  page.add_section("setup", "Setup", panel(facts_table("Configuration", data.configuration), false));
  return page_html(page);
}

void write_report(const std::string& path, const ReportData& data) {
  // It is written again and again, and can be made anew: not worth a wait for the disk.
  write_file(path, report_html(data), OutputFile::Flush::to_system);
}

}  // namespace heddle::observe
