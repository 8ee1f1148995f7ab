#include "heddle/observe/plan_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "heddle/base/error.h"
#include "heddle/observe/charts/html.h"
#include "heddle/observe/charts/report_style.h"
#include "heddle/observe/charts/svg_chart.h"
#include "heddle/observe/plan_picture.h"
#include "heddle/observe/units.h"
#include "heddle/search/launch/emit.h"

namespace heddle::observe {

namespace {

using search::Explanation;

constexpr size_t kMostNeighbours = 24;

std::string percent(double part) { return fmt::format("{:.1f} %", 100 * part); }
std::string signed_percent(double ratio) { return fmt::format("{:+.1f} %", 100 * (ratio - 1)); }

std::string base64(std::string_view bytes) {
  static constexpr std::string_view kLetters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t three = 0;
    for (size_t k = 0; k < 3; ++k)
      three = three << 8 | (i + k < bytes.size() ? static_cast<unsigned char>(bytes[i + k]) : 0u);
    for (size_t k = 0; k < 4; ++k) out += i + k > bytes.size() ? '=' : kLetters[three >> (18 - 6 * k) & 63];
  }
  return out;
}

std::string card(const std::string& label, const std::string& value, const std::string& remark, const char* mood) {
  return fmt::format(
      "<div class=\"card {}\"><div class=\"label\">{}</div><div class=\"value\">{}</div>"
      "<div class=\"remark\">{}</div></div>\n",
      mood, escape_html(label), escape_html(value), escape_html(remark));
}

// Bars, each beginning where the one above ends.
std::string waterfall(const Explanation& x) {
  constexpr double kLeft = 170, kRight = 990, kRow = 26;
  const double step = x.estimate.step_s;
  std::string rows;
  double begin = 0;
  int line = 0;
  for (size_t i = 0; i < x.parts.size(); ++i) {
    const search::StepPart& p = x.parts[i];
    if (p.seconds <= 0) continue;
    const double top = kRow * line++, from = kLeft + (kRight - kLeft) * begin / step,
                 width = std::max(1.0, (kRight - kLeft) * p.seconds / step);
    rows += fmt::format(
        "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text><rect class=\"c{}\" fill=\"currentColor\" x=\"{}\" "
        "y=\"{}\" width=\"{}\" height=\"{}\" rx=\"2\"/><text x=\"{}\" y=\"{}\">{}, {}</text>\n",
        kLeft - 10, coordinate(top + 17), escape_html(p.name), i % kChartColours, coordinate(from),
        coordinate(top + 4), coordinate(width), kRow - 8, coordinate(from + width + 8), coordinate(top + 17),
        duration_text(p.seconds * x.scale.scale), percent(p.seconds / step));
    begin += p.seconds;
  }
  return fmt::format(
      "<figure><figcaption><span class=\"title\">Where the step goes</span></figcaption>"
      "<svg viewBox=\"0 0 1140 {}\" role=\"img\" aria-label=\"waterfall of the step\">\n{}</svg></figure>",
      coordinate(kRow * line + 4), rows);
}

struct HtmlTable {
  std::string caption;
  std::vector<std::string> head;
  std::vector<bool> number;
  std::vector<std::vector<std::string>> rows;

  std::string text() const {
    std::string out = fmt::format("<div class=\"scroll\"><table><caption>{}</caption>\n<tr>", escape_html(caption));
    const auto cell = [&](const char* tag, size_t i, const std::string& value) {
      out += fmt::format("<{0}{1}>{2}</{0}>", tag, number[i] ? " class=\"number\"" : "", escape_html(value));
    };
    for (size_t i = 0; i < head.size(); ++i) cell("th", i, head[i]);
    out += "</tr>\n";
    for (const auto& row : rows) {
      out += "<tr>";
      for (size_t i = 0; i < row.size(); ++i) cell("td", i, row[i]);
      out += "</tr>\n";
    }
    return out + "</table></div>";
  }
};

std::string panel(const std::string& inside, const char* kind = "wide") {
  return fmt::format("<section class=\"panel {}\">{}</section>\n", kind, inside);
}

std::string pictures(const Explanation& x) {
  if (x.launch.job.layout.pp < 2) return "";
  try {
    const PlanPicture p = picture_of(x.launch);
    std::string out = panel(
        fmt::format("<figure><figcaption><span class=\"title\">The pipeline</span></figcaption><img alt=\"schedule "
                    "{}\" style=\"width:100%\" src=\"data:image/svg+xml;base64,{}\"></figure>",
                    escape_html(x.launch.schedule), base64(svg_of(p))));
    StackedArea chart;
    chart.title = fmt::format("Memory of rank {} over the step", p.rank);
    chart.x_label = "time";
    chart.x = p.at_us;
    const std::vector<double> fixed(p.at_us.size(), p.fixed_bytes);
    chart.layers = {{"weights, gradients, states", {}, fixed, 0}, {"activations", {}, p.activation_bytes, 1}};
    chart.levels = {{"device memory", x.memory_bytes}};
    return out + panel(stacked_area(chart));
  } catch (const ConfigError& error) {
    return panel(fmt::format("<p>No picture: {}</p>", escape_html(error.what())));
  }
}

std::string tables(const Explanation& x) {
  const double step = x.estimate.step_s;
  HtmlTable answers{
      "When something is slower or faster", {"what", "20 % less", "20 % more"}, {false, true, true}, {}};
  for (const search::Sensitivity& s : x.sensitivities)
    answers.rows.push_back({s.what, signed_percent(s.less), signed_percent(s.more)});
  HtmlTable memory{"Memory of the fullest rank", {"what", "bytes", "part"}, {false, true, true}, {}};
  for (const search::MemoryPart& p : x.memory)
    memory.rows.push_back({p.name, bytes_text(p.bytes), percent(p.bytes / x.estimate.peak_bytes)});
  HtmlTable remedies{"What would free memory", {"what", "bytes", "step", "fits"}, {false, true, true, false}, {}};
  for (const search::Remedy& r : x.remedies)
    remedies.rows.push_back({r.what, bytes_text(r.frees_bytes), signed_percent(1 + r.costs_s / step),
                             r.peak_bytes <= x.memory_bytes ? "yes" : "no"});
  HtmlTable neighbours{"Plans one step away", {"change", "step", "why not"}, {false, true, false}, {}};
  for (size_t i = 0; i < std::min(kMostNeighbours, x.neighbours.size()); ++i) {
    const search::Neighbour& n = x.neighbours[i];
    neighbours.rows.push_back(
        {n.change, n.ratio > 0 ? signed_percent(n.ratio) : "", n.fits && n.ratio < 1 ? "better: " + n.why : n.why});
  }
  return "<div class=\"grid\">" + panel(answers.text(), "") + panel(memory.text(), "") + "</div>\n" +
         panel(remedies.text()) + panel(neighbours.text());
}

std::string launches(const Explanation& x, const LaunchText& launch_text) {
  std::string out;
  for (const std::string& target : search::emit_targets()) {
    const std::vector<std::string> refusals = search::refusals_of(x.launch, target);
    if (refusals.empty()) {
      out += fmt::format("<details><summary>{}</summary><pre class=\"mono\">{}</pre></details>\n",
                         escape_html(target), escape_html(launch_text(x.launch, target)));
    } else {
      out += fmt::format("<p>{}: not possible, {}</p>\n", escape_html(target), escape_html(refusals.front()));
    }
  }
  return panel(out);
}

std::string section(const Explanation& x, size_t number, const LaunchText& launch_text) {
  const search::Job& j = x.launch.job;
  const double step = x.estimate.step_s;
  std::string out = fmt::format("<h2>{}. {}, {}</h2>\n<div class=\"cards\">\n", number,
                                escape_html(search::layout_line(j)), escape_html(x.launch.schedule));
  out += card(
      "step", duration_text(x.step_s()),
      fmt::format("{} to {}, nine of ten", duration_text(step * x.scale.low), duration_text(step * x.scale.high)),
      "");
  out += card("tokens/s a device", fmt::format("{:.0f}", x.tokens_per_s_per_device()), "from " + x.scale.from, "");
  out += card("model FLOPs utilization", percent(x.estimate.model_flops_utilization / x.scale.scale), "", "");
  out += card("peak memory", bytes_text(x.estimate.peak_bytes), "of " + bytes_text(x.memory_bytes),
              x.fits ? "good" : "bad");
  out += card("bound by", x.binding, x.binding_why, "");
  return out + "</div>\n" + panel(waterfall(x)) + pictures(x) + tables(x) + launches(x, launch_text);
}

}  // namespace

std::string plan_page(const std::vector<Explanation>& plans, const LaunchText& launch_text) {
  HEDDLE_CHECK(!plans.empty(), "a page of no plan");
  const search::Job& j = plans.front().launch.job;
  const std::string title =
      fmt::format("{} on {} × {}", j.shape.name.empty() ? "Model" : j.shape.name, j.layout.devices, j.device.name);
  std::string body;
  for (size_t i = 0; i < plans.size(); ++i) body += section(plans[i], i + 1, launch_text);
  return fmt::format(
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" "
      "content=\"width=device-width\"><title>{0}</title>\n<style>{1}\n.panel {{ margin-top: 16px; }} td.number, "
      "th.number {{ padding-right: 28px; }} pre {{ "
      "overflow-x: "
      "auto; }}</style></head>\n<body><header><div class=\"brand\">Heddle</div><h1>{0}</h1><div class=\"subtitle\">"
      "global batch {2}, sequence {3:.0f}, "
      "predicted</div></header>\n<main>\n{4}</main>\n<script>{5}</script></body></html>\n",
      escape_html(title), report_style(), j.global_batch, j.sequence, body, chart_script());
}

}  // namespace heddle::observe
