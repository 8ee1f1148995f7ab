#include "heddle/observe/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>

#include "heddle/base/error.h"
#include "heddle/base/files/output_file.h"
#include "heddle/base/statistics.h"
#include "heddle/observe/charts/html.h"
#include "heddle/observe/charts/report_style.h"
#include "heddle/observe/charts/svg_chart.h"
#include "heddle/observe/units.h"

namespace heddle::observe {
namespace {

constexpr int kHalfWidth = 560, kFullWidth = 1140;
constexpr size_t kMostPeakTensors = 16;
constexpr size_t kSmoothFromPoints = 60;

using Figure = std::optional<double> StepMetrics::*;

Series series_of(const std::vector<StepMetrics>& steps, Figure figure, std::string label, int colour,
                 Mark mark = Mark::line) {
  Series series{std::move(label), {}, {}, colour, mark};
  for (const StepMetrics& step : steps) {
    if (const auto& value = step.*figure) {
      series.x.push_back(static_cast<double>(step.step));
      series.y.push_back(*value);
    }
  }
  return series;
}

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

// What the curve ends at: the mean of its last fiftieth, or what is no number if it ends with that.
double final_mean(const Series& series) {
  if (!std::isfinite(series.y.back())) return series.y.back();
  const size_t window = std::max<size_t>(1, series.y.size() / 50);
  const std::vector<double> last = finite({series.y.end() - static_cast<std::ptrdiff_t>(window), series.y.end()});
  return last.empty() ? series.y.back()
                      : std::accumulate(last.begin(), last.end(), 0.0) / static_cast<double>(last.size());
}

// A noisy curve is drawn faintly with its mean over it, a short one as it is.
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

std::optional<double> typical(std::vector<double> values) {
  values = finite(values);
  if (values.empty()) return std::nullopt;
  return median(std::move(values));
}

// Steps are alike once warm: the later half speaks for the run.
std::optional<double> later_median(const Series& series) {
  return typical({series.y.begin() + static_cast<std::ptrdiff_t>(series.y.size() / 2), series.y.end()});
}

// Curves whose peaks would flatten everything else go on a logarithmic axis.
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

std::string card_html(const VerdictCard& card) {
  const char* mood = card.mood == VerdictCard::Mood::good  ? " good"
                     : card.mood == VerdictCard::Mood::bad ? " bad"
                                                           : "";
  // "12.3 Ktok/s": the unit is set smaller than the number.
  std::string value = escape_html(card.value);
  if (const size_t space = value.find(' '); space != value.npos) {
    value = fmt::format("{} <small>{}</small>", value.substr(0, space), value.substr(space + 1));
  }
  return fmt::format(
      "<div class=\"card{}\"><div class=\"label\">{}</div><div class=\"value\">{}</div><div "
      "class=\"remark\">{}</div></div>\n",
      mood, escape_html(card.label), value, escape_html(card.note));
}

std::optional<double> measured_peak(const ReportData& data) {
  if (data.measured_peak_bytes) return data.measured_peak_bytes;
  std::optional<double> most;
  for (const StepMetrics& step : data.steps) {
    const auto& peak = step.arena_reserved_peak_bytes ? step.arena_reserved_peak_bytes : step.arena_live_peak_bytes;
    if (peak && (!most || *peak > *most)) most = peak;
  }
  return most;
}

void add_loss_card(const ReportData& data, std::vector<VerdictCard>& cards) {
  using Mood = VerdictCard::Mood;
  const Series loss = series_of(data.steps, &StepMetrics::lm_loss, "", 0);
  if (loss.y.empty()) return;
  const double last = final_mean(loss);
  if (!std::isfinite(last)) {
    cards.push_back(
        {"Final loss", number_text(last), fmt::format("diverged by step {:.0f}", loss.x.back()), Mood::bad});
    return;
  }
  VerdictCard card{"Final loss", fmt::format("{:.3f}", last), fmt::format("at step {:.0f}", loss.x.back())};
  if (data.unigram_entropy) {
    const double below = *data.unigram_entropy - last;
    card.note = fmt::format("{:.2f} {} unigram entropy", std::abs(below), below >= 0 ? "below" : "above");
    card.mood = below > 0 ? Mood::good : Mood::neutral;
  } else if (std::isfinite(loss.y.front())) {
    card.note = fmt::format("from {:.2f} at step {:.0f}", loss.y.front(), loss.x.front());
  }
  cards.push_back(std::move(card));
}

void add_memory_card(const ReportData& data, std::vector<VerdictCard>& cards) {
  using Mood = VerdictCard::Mood;
  const std::optional<double> measured = measured_peak(data);
  const std::optional<double>& predicted = data.predicted_peak_bytes;
  if (measured && predicted) {
    const double off = *predicted > 0 ? (*measured - *predicted) / *predicted : 0;
    const bool exact = *measured == *predicted;
    cards.push_back({"Peak memory", bytes_text(*measured),
                     exact ? std::string("predicted to the byte")
                           : fmt::format("predicted {} ({:+.1f} %)", bytes_text(*predicted), 100 * off),
                     std::abs(off) <= 0.01 ? Mood::good
                     : off > 0.1           ? Mood::bad
                                           : Mood::neutral});
  } else if (measured) {
    cards.push_back({"Peak memory", bytes_text(*measured), "measured"});
  } else if (predicted) {
    cards.push_back({"Peak memory", bytes_text(*predicted), "predicted, not measured"});
  }
}

std::string cards_html(const ReportData& data) {
  std::vector<VerdictCard> cards;
  add_loss_card(data, cards);
  const Series held_out = series_of(data.steps, &StepMetrics::held_out_loss, "", 0);
  if (!held_out.y.empty()) {
    cards.push_back({"Held-out perplexity", number_text(std::exp(held_out.y.back())),
                     fmt::format("loss {} at step {:.0f}", number_text(held_out.y.back()), held_out.x.back())});
  }
  const Series tokens = series_of(data.steps, &StepMetrics::tokens_per_s, "", 0);
  if (const auto rate = later_median(tokens)) {
    VerdictCard card{"Tokens per second", count_text(*rate), "median of the later half"};
    for (const StepMetrics& step : data.steps) {
      if (step.tokens) card.note = fmt::format("median; {} tokens seen", count_text(*step.tokens));
    }
    cards.push_back(std::move(card));
  }
  if (const auto rate = later_median(series_of(data.steps, &StepMetrics::flops_per_s, "", 0))) {
    cards.push_back({"Model FLOP/s", count_text(*rate, "FLOP/s"), "median; recompute not counted"});
  }
  add_memory_card(data, cards);
  cards.insert(cards.end(), data.cards.begin(), data.cards.end());
  if (cards.empty()) return "";
  std::string text = "<div class=\"cards\">\n";
  for (const VerdictCard& card : cards) text += card_html(card);
  return text + "</div>\n";
}

std::string panel(const std::string& content, bool wide) {
  return content.empty() ? "" : fmt::format("<div class=\"panel{}\">\n{}</div>\n", wide ? " wide" : "", content);
}

std::string section(std::string_view heading, const std::string& panels) {
  return panels.empty()
             ? ""
             : fmt::format("<section><h2>{}</h2>\n<div class=\"grid\">\n{}</div></section>\n", heading, panels);
}

LineChart step_chart(const ReportData& data, Figure figure, const std::string& title, AxisUnit unit, int colour,
                     bool from_zero, bool noisy = true) {
  LineChart chart;
  chart.title = title;
  chart.x_label = "step";
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

std::string learning_section(const ReportData& data) {
  LineChart loss;
  loss.title = "Loss";
  loss.x_label = "step";
  loss.width = kFullWidth;
  loss.height = 330;
  add_noisy(loss.series, series_of(data.steps, &StepMetrics::lm_loss, "language model", 0));
  add_noisy(loss.series, series_of(data.steps, &StepMetrics::mtp_loss, "multi-token prediction", 3));
  Series held_out = series_of(data.steps, &StepMetrics::held_out_loss, "held-out", 1, Mark::points);
  if (!held_out.y.empty()) loss.series.push_back(std::move(held_out));
  loss.y_scale = scale_for(loss.series);
  if (data.unigram_entropy) loss.levels.push_back({"unigram entropy", *data.unigram_entropy});
  return section(
      "Learning",
      panel(line_chart(loss), true) +
          in_pairs({step_chart(data, &StepMetrics::learning_rate, "Learning rate", AxisUnit::plain, 2, true, false),
                    step_chart(data, &StepMetrics::gradient_norm, "Gradient norm", AxisUnit::plain, 4, true)}));
}

std::string speed_section(const ReportData& data) {
  return section(
      "Speed",
      in_pairs({step_chart(data, &StepMetrics::tokens_per_s, "Tokens per second", AxisUnit::count, 2, true),
                step_chart(data, &StepMetrics::flops_per_s, "Model FLOP/s", AxisUnit::count, 6, true)}));
}

std::string experts_section(const ReportData& data) {
  HeatMap map;
  for (auto step = data.steps.rbegin(); step != data.steps.rend(); ++step) {
    if (step->expert_loads_LE.empty()) continue;
    map.title = fmt::format("Expert load ÷ mean at step {}", step->step);
    for (const std::vector<double>& loads_E : step->expert_loads_LE) {
      const double mean = std::accumulate(loads_E.begin(), loads_E.end(), 0.0) /
                          static_cast<double>(std::max<size_t>(1, loads_E.size()));
      std::vector<double>& row = map.ratio.emplace_back();
      for (const double load : loads_E) {
        row.push_back(mean > 0 ? load / mean : std::numeric_limits<double>::quiet_NaN());
      }
    }
    break;
  }
  for (size_t layer = 0; layer < map.ratio.size(); ++layer) {
    map.rows.push_back(layer < data.expert_layers.size() ? data.expert_layers[layer] : fmt::format("{}", layer));
  }
  map.x_label = "expert";
  map.row_word = "layer";
  map.column_word = "expert";
  LineChart imbalance = step_chart(data, &StepMetrics::expert_imbalance, "Imbalance: busiest expert ÷ mean",
                                   AxisUnit::plain, 1, false);
  imbalance.levels.push_back({"even load", 1});
  const LineChart balance =
      step_chart(data, &StepMetrics::auxiliary_loss, "Auxiliary (balance) loss", AxisUnit::plain, 5, false);
  return section("Experts", panel(heat_map(map), true) + in_pairs({imbalance, balance}));
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
  std::string text =
      "<div class=\"scroll\"><table><caption>Tensors at the "
      "peak</caption>\n<tr><th>tensor</th><th>type</th><th>shape</th>"
      "<th>role</th><th class=\"number\">bytes</th><th class=\"number\">share</th><th></th></tr>\n";
  double shown_bytes = 0;
  for (const PeakTensor* tensor : largest) {
    shown_bytes += tensor->bytes;
    const double share = total_bytes > 0 ? tensor->bytes / total_bytes : 0;
    const double of_largest = largest[0]->bytes > 0 ? tensor->bytes / largest[0]->bytes : 0;
    text += fmt::format(
        "<tr><td class=\"mono\">{}</td><td>{}</td><td class=\"mono\">{}</td><td>{}</td><td class=\"number\">{}</td>"
        "<td class=\"number\">{:.1f} %</td><td class=\"share\"><i style=\"width:{:.1f}%\"></i></td></tr>\n",
        escape_html(tensor->name), escape_html(tensor->dtype), escape_html(tensor->shape),
        escape_html(tensor->role), bytes_text(tensor->bytes), 100 * share, 100 * of_largest);
  }
  if (hidden > 0) {
    text += fmt::format(
        "<tr><td colspan=\"4\">{} smaller ones</td><td class=\"number\">{}</td><td class=\"number\">{:.1f} %</td>"
        "<td></td></tr>\n",
        hidden, bytes_text(total_bytes - shown_bytes), 100 * (total_bytes - shown_bytes) / total_bytes);
  }
  return text + "</table></div>\n";
}

std::string memory_section(const ReportData& data) {
  const MemoryCurve& memory = data.memory;
  StackedArea chart;
  chart.title = memory.title.empty() ? "Memory over one step" : "Memory over one step: " + memory.title;
  chart.x_label = "time in step";
  chart.x = memory.at_us;
  int colour = 0;
  if (memory.roles.empty() && !memory.live_bytes.empty()) {
    chart.layers.push_back({"live", {}, memory.live_bytes, colour++, Mark::line});
  }
  for (const MemoryCurve::OfRole& role : memory.roles) {
    chart.layers.push_back({role.role, {}, role.bytes, colour++, Mark::line});
  }
  if (!memory.reserved_bytes.empty()) {
    chart.lines.push_back({"reserved", {}, memory.reserved_bytes, kInkColour, Mark::line});
  }
  if (memory.capacity_bytes) chart.levels.push_back({"capacity", *memory.capacity_bytes});
  return section("Memory", panel(stacked_area(chart), true) + panel(peak_table(data), true));
}

std::string facts_table(const std::string& caption, const Facts& facts) {
  if (facts.empty()) return "";
  std::string text = fmt::format("<table><caption>{}</caption>\n", caption);
  for (const auto& [name, value] : facts) {
    text += fmt::format("<tr><td class=\"key\">{}</td><td class=\"mono\">{}</td></tr>\n", escape_html(name),
                        escape_html(value));
  }
  return text + "</table>\n";
}

std::string pipeline_section(const ReportData& data) {
  std::string panels;
  for (const std::string& picture : data.pipeline) {
    panels +=
        panel(fmt::format("<div class=\"pictures\"><img alt=\"the pipeline over one step\" src=\"{}\"></div>\n",
                          svg_data_uri(picture)),
              true);
  }
  return section("Pipeline: measured, and foretold from the ops' own times", panels);
}

std::string samples_section(const ReportData& data) {
  std::string panels;
  for (const SampleText& sample : data.samples) {
    panels += panel(
        fmt::format("<div class=\"sample-head\">step {}</div><div class=\"sample\"><span class=\"prompt\">{}</span>"
                    "<span class=\"said\">{}</span></div>\n",
                    sample.step, escape_html(sample.prompt), escape_html(sample.continuation)),
        true);
  }
  return section("What it writes", panels);
}

}  // namespace

std::string report_html(const ReportData& data) {
  const std::string name = escape_html(data.run_name.empty() ? "training run" : data.run_name);
  std::string text = fmt::format(
      "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" "
      "content=\"width=device-width, initial-scale=1\">\n<meta http-equiv=\"Content-Security-Policy\" "
      "content=\"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src "
      "'unsafe-inline'\">\n<title>{} · "
      "Heddle</title>\n"
      "<style>{}</style>\n</head>\n<body>\n<header>\n<div class=\"brand\">Heddle · training "
      "report</div>\n<h1>{}</h1>\n",
      name, report_style(), name);
  if (!data.subtitle.empty()) text += fmt::format("<div class=\"subtitle\">{}</div>\n", escape_html(data.subtitle));
  if (!data.model.empty()) {
    text += "<ul class=\"chips\">\n";
    for (const auto& [key, value] : data.model) {
      text += fmt::format("<li><span>{}</span>{}</li>\n", escape_html(key), escape_html(value));
    }
    text += "</ul>\n";
  }
  text += cards_html(data) + "</header>\n<main>\n";
  text += learning_section(data);
  text += speed_section(data);
  text += experts_section(data);
  text += memory_section(data);
  Lanes streams;
  streams.title = data.timeline_title.empty() ? "Streams over one step" : data.timeline_title;
  streams.timeline = &data.timeline;
  text += pipeline_section(data);
  text += section("Timeline", panel(lanes(streams), true));
  text += samples_section(data);
  text += section("Setup", panel(facts_table("Configuration", data.configuration), false) +
                               panel(facts_table("Environment", data.environment), false));
  text += "</main>\n<footer>Written by Heddle. This file is complete: it loads nothing.</footer>\n<script>\n";
  text += chart_script();
  text += "</script>\n</body>\n</html>\n";
  return text;
}

void write_report(const std::string& path, const ReportData& data) {
  // It is written again and again, and can be made anew: not worth a wait for the disk.
  write_file(path, report_html(data), OutputFile::Flush::to_system);
}

}  // namespace heddle::observe
