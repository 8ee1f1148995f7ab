#include "heddle/observe/plans/plan_page.h"

#include <fmt/format.h>

#include <algorithm>

#include "heddle/base/error.h"
#include "heddle/observe/charts/html.h"
#include "heddle/observe/charts/html_table.h"
#include "heddle/observe/charts/page.h"
#include "heddle/observe/charts/svg_chart.h"
#include "heddle/observe/plans/plan_charts.h"
#include "heddle/observe/plans/plan_figures.h"
#include "heddle/observe/units.h"

namespace heddle::observe {

namespace {

using search::Explanation;

constexpr size_t kMostNeighbours = 24, kMostRemedies = 12;

// Bars, each beginning where the one above ends, with their words behind them or, where there is no room, before
// them.
View waterfall_view(const Explanation& x, const PlanTable& table, int width) {
  const double left = width < 500 ? 138 : 170, right = width - (width < 500 ? 8.0 : 130.0), row = 26;
  const double step = x.plan.exact.step_s;
  std::string rows;
  double begin = 0;
  size_t line = 0;
  for (size_t i = 0; i < x.parts.size(); ++i) {
    const search::StepPart& p = x.parts[i];
    if (p.seconds <= 0) continue;
    const double top = row * static_cast<double>(line), from = left + (right - left) * begin / step,
                 wide = std::max(1.0, (right - left) * p.seconds / step);
    const std::string words = fmt::format("{}, {}", table.rows[line][1], table.rows[line][2]);
    const double needs = 6.3 * static_cast<double>(words.size()) + 8;
    // Words stand behind the bar, where the page is too narrow for that before it, and in a long bar.
    const char *anchor = "start", *where = "";
    double at = from + wide + 8;
    if (at + needs > width) at = from - 8, anchor = "end";
    if (at - needs < left - 8 && anchor[0] == 'e') at = from + wide - 8, where = " class=\"in-bar\"";
    rows += fmt::format(
        "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text><rect class=\"c{}\" fill=\"currentColor\" x=\"{}\" "
        "y=\"{}\" width=\"{}\" height=\"{}\" rx=\"2\"/><text{} x=\"{}\" y=\"{}\" "
        "text-anchor=\"{}\">{}</text>\n",
        coordinate(left - 10), coordinate(top + 17), escape_html(p.name), i % kChartColours, coordinate(from),
        coordinate(top + 4), coordinate(wide), row - 8, where, coordinate(at), coordinate(top + 17), anchor, words);
    begin += p.seconds;
    ++line;
  }
  return {open_svg(width, row * static_cast<double>(line) + 4, "where the step goes") + rows + "</svg>\n", ""};
}

std::string waterfall(const Explanation& x) {
  const PlanTable table = step_table(x);
  return fmt::format("<figure><figcaption><span class=\"title\">{}</span></figcaption>\n{}</figure>\n", table.title,
                     views_of(1140, 0, [&](int width, int) { return waterfall_view(x, table, width); }).svg);
}

std::string html_of(const PlanTable& from) {
  HtmlTable table;
  table.caption = from.title;
  for (size_t i = 0; i < from.columns.size(); ++i)
    table.columns.push_back({from.columns[i], i > 0 && !(from.ends_in_words && i + 1 == from.columns.size())});
  table.rows = from.rows;
  return table.html();
}

std::string launches(const std::vector<SaidLaunch>& said) {
  std::string out;
  for (const SaidLaunch& each : said) {
    if (each.refusal.empty()) {
      out += fmt::format("<details><summary>as a launch of {}</summary><pre class=\"mono\">{}</pre></details>\n",
                         escape_html(each.target), escape_html(each.text));
    } else {
      out += fmt::format("<p>{}: not possible, {}</p>\n", escape_html(each.target), escape_html(each.refusal));
    }
  }
  return out;
}

std::string title_of(const Explanation& x) {
  return fmt::format("{}, {}", search::layout_line(x.launch.job), x.launch.schedule);
}

std::string plan_section(const Explanation& x, size_t number, const SayLaunch& say_launch) {
  const PlanFiguresInFull f = figures_of(x);
  std::string cards;
  cards += card_html({"Step", f.step, fmt::format("{} to {}, nine of ten", f.low, f.high)});
  cards += card_html({"Tokens/s a device", f.tokens_per_s_per_device, "from " + x.scale.from});
  cards += card_html({"Model FLOPs utilization", f.utilization, "of the rated bf16 FLOP/s"});
  cards += card_html({"Peak memory", f.peak, "of " + f.memory + (x.fits ? ", fits" : ", does not fit"),
                      x.fits ? VerdictCard::Mood::good : VerdictCard::Mood::bad});
  cards += card_html({"Bound by", x.binding, x.binding_why, VerdictCard::Mood::neutral, true});
  std::string body = fmt::format("<div class=\"cards\">\n{}</div>\n", cards);
  std::string panels = panel(waterfall(x), true);
  if (!x.plan.untimed.empty()) {
    panels += panel(fmt::format("<p>No schedule was run, the figures are those of closed forms: {}</p>\n",
                                escape_html(x.plan.untimed)),
                    true);
  }
  if (x.launch.job.mesh.pp > 1) panels += panel(pipeline_figure(x.plan, x.scale.scale), true);
  panels += panel(memory_figure(x.plan, x.scale.scale, x.memory_bytes), true);
  panels += panel(html_of(sensitivity_table(x)), false) + panel(html_of(memory_table(x)), false);
  panels += panel(html_of(remedy_table(x, kMostRemedies)), true);
  panels += panel(html_of(neighbour_table(x, kMostNeighbours)), true);
  panels += panel(launches(say_launch(x.launch)), true);
  return fmt::format("<section id=\"plan-{0}\"><h2>{0}. {1}</h2>\n{2}<div class=\"grid\">\n{3}</div></section>\n",
                     number, escape_html(title_of(x)), body, panels);
}

}  // namespace

std::string plan_page(const std::vector<Explanation>& plans, const SayLaunch& say_launch) {
  HEDDLE_CHECK(!plans.empty(), "a page of no plan");
  const search::Job& j = plans.front().launch.job;
  Page page;
  page.brand = "Heddle · plans";
  page.title = fmt::format("{} on {} × {}", j.shape.name.empty() ? "Model" : j.shape.name,
                           grouped_text(j.mesh.ranks()), j.device.name);
  page.subtitle =
      fmt::format("global batch {}, sequence {} tokens; predicted, written {}", grouped_text(j.global_batch),
                  grouped_text(static_cast<long long>(j.sequence)), date_text());
  page.figures_json = json_of(plans);
  for (size_t i = 0; i < plans.size(); ++i) {
    page.contents.emplace_back(fmt::format("plan-{}", i + 1),
                               fmt::format("{}. {}: {}", i + 1, title_of(plans[i]), figures_of(plans[i]).step));
    page.body += plan_section(plans[i], i + 1, say_launch);
  }
  return page_html(page);
}

}  // namespace heddle::observe
