#include "heddle/observe/charts/page.h"

#include <fmt/format.h>

#include <ctime>

#include "heddle/observe/assets/assets.h"
#include "heddle/observe/charts/html.h"
#include "heddle/observe/charts/svg_chart.h"

namespace heddle::observe {

std::string card_html(const VerdictCard& card) {
  const char* mood = card.mood == VerdictCard::Mood::good  ? " good"
                     : card.mood == VerdictCard::Mood::bad ? " bad"
                                                           : "";
  // "12.3 Ktok/s": the unit is set smaller than the number.
  std::string value = escape_html(card.value);
  if (const size_t space = value.find(' '); space != value.npos && !card.words) {
    value = fmt::format("{} <small>{}</small>", value.substr(0, space), value.substr(space + 1));
  }
  return fmt::format(
      "<div class=\"card{}{}\"><div class=\"label\">{}</div><div class=\"value\">{}</div><div "
      "class=\"remark\">{}</div></div>\n",
      mood, card.words ? " words" : "", escape_html(card.label), value, escape_html(card.note));
}

std::string panel(const std::string& html, bool wide) {
  return html.empty() ? "" : fmt::format("<div class=\"panel{}\">\n{}</div>\n", wide ? " wide" : "", html);
}

void Page::add_section(const std::string& id, const std::string& heading, const std::string& panels) {
  if (panels.empty()) return;
  contents.emplace_back(id, heading);
  body += fmt::format("<section id=\"{}\"><h2>{}</h2>\n<div class=\"grid\">\n{}</div></section>\n", id,
                      escape_html(heading), panels);
}

std::string page_html(const Page& page) {
  const std::string title = escape_html(page.title);
  std::string text = fmt::format(
      "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" "
      "content=\"width=device-width, initial-scale=1\">\n<meta http-equiv=\"Content-Security-Policy\" "
      "content=\"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'unsafe-inline'\">\n"
      "<title>{0} · Heddle</title>\n<style>{1}</style>\n</head>\n<body>\n<header>\n<div class=\"brand\">{2}</div>\n"
      "<h1>{0}</h1>\n",
      title, kReportStyle, escape_html(page.brand));
  if (!page.subtitle.empty()) text += fmt::format("<div class=\"subtitle\">{}</div>\n", escape_html(page.subtitle));
  text += page.head;
  if (page.contents.size() > 1) {
    text += "<ul class=\"contents\">\n";
    for (const auto& [id, name] : page.contents)
      text += fmt::format("<li><a href=\"#{}\">{}</a></li>\n", id, escape_html(name));
    text += "</ul>\n";
  }
  text += "</header>\n<main>\n" + page.body;
  if (!page.figures_json.empty()) {
    std::string json = page.figures_json;
    for (size_t at = json.find('<'); at != json.npos; at = json.find('<', at)) json.replace(at, 1, "\\u003c");
    text += fmt::format("<script type=\"application/json\" id=\"figures\">{}</script>\n", json);
  }
  text += "</main>\n<footer>Written by Heddle. This file is complete: it loads nothing.</footer>\n<script>\n";
  text += kReportScript;
  return text + "</script>\n</body>\n</html>\n";
}

std::string date_text() { return date_text(static_cast<double>(std::time(nullptr))); }

std::string date_text(double unix_s) {
  const auto when = static_cast<std::time_t>(unix_s);
  std::tm utc{};
  gmtime_r(&when, &utc);
  char text[32];
  return std::string(text, std::strftime(text, sizeof text, "%Y-%m-%d %H:%M UTC", &utc));
}

}  // namespace heddle::observe
