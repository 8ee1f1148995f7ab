#include "check/report.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "heddle/formats/safetensors.h"
#include "heddle/observe/charts/html.h"
#include "heddle/observe/charts/html_table.h"
#include "heddle/observe/charts/page.h"
#include "heddle/observe/charts/svg_chart.h"
#include "heddle/observe/table.h"

namespace heddle::check {

namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMostRows = 40;       // of tensors that differ
constexpr size_t kMostOfPicture = 14;  // tensors of a layer
constexpr size_t kMostAlike = 4;

std::string ratio_text(double ratio) {
  if (!std::isfinite(ratio)) return "not finite";
  return ratio < 1000 ? fmt::format("{:.2f}", ratio) : fmt::format("{:.1e}", ratio);
}

// "model.layers.3" of what is in a layer; "" outside of the layers.
std::string layer_of(const std::string& name) {
  const std::string prefix = "model.layers.";
  if (!name.starts_with(prefix)) return "";
  return name.substr(0, name.find('.', prefix.size()));
}

// The dump's tensors about the first that differs: of its layer, stage and microbatch, in program order.
std::vector<const Case*> around(const Findings& findings) {
  const Case& first = *findings.first();
  std::vector<const Case*> row;
  size_t at = 0;
  for (const Case& one : findings.all) {
    if (one.stage != first.stage || one.microbatch != first.microbatch) continue;
    const bool near = layer_of(one.name) == layer_of(first.name);
    if (!near) continue;
    if (&one == &first) at = row.size();
    row.push_back(&one);
  }
  const size_t begin = at > kMostOfPicture / 2 ? at - kMostOfPicture / 2 : 0;
  const size_t end = std::min(row.size(), begin + kMostOfPicture);
  return {row.begin() + static_cast<std::ptrdiff_t>(begin), row.begin() + static_cast<std::ptrdiff_t>(end)};
}

std::string mark_of(const Case& one) { return one.worst() <= 1 ? "equal" : "differs"; }

std::string first_line(const Diagnosis& d) {
  const Case& first = *d.findings().first();
  const std::string group = d.group_of(first);
  std::string trainers;
  for (const Record* record : first.records) {
    if (trainers.empty() && !record->group.empty())
      trainers = fmt::format(", {}", formats::printable(record->group));
  }
  return fmt::format("the {} is the first that differs: {}, {} times what the dtype allows{}{}", first.text(),
                     d.ranks_of(first), ratio_text(first.worst()),
                     group.empty() ? "" : fmt::format("; its copies differ along {}", group), trainers);
}

std::string names_of(const Findings& findings, const std::vector<size_t>& cases, size_t most) {
  std::vector<std::string> names;
  for (const size_t i : cases) {
    if (names.size() < most) names.push_back(findings.all[i].text());
  }
  std::string text = fmt::format("{}", fmt::join(names, "; "));
  if (cases.size() > most) text += fmt::format("; and {} more", cases.size() - most);
  return text;
}

std::string alike_text(const Explanation& e) {
  std::vector<std::string> names;
  for (const Fault* fault : e.alike) {
    if (names.size() < kMostAlike) names.push_back(fault->sentence);
  }
  return fmt::format("{}", fmt::join(names, "; or "));
}

std::string subject_of(const Dump& dump, const Findings& findings) {
  return fmt::format("{}{}, {} tensors",
                     dump.layout.trainer.empty() ? "" : formats::printable(dump.layout.trainer) + ": ",
                     plan::text_of(dump.layout.mesh), findings.tensors);
}

}  // namespace

std::string report_text(const Dump& dump, const Diagnosis& d, const observe::Terminal& terminal) {
  const Findings& f = d.findings();
  std::string text = subject_of(dump, f) + "\n";
  for (const std::string& note : f.notes) text += fmt::format("note: {}\n", note);
  if (f.equal())
    return text + fmt::format("equal: every tensor is within what {} allows (the worst is {} of it)\n",
                              name_of(dump.layout.dtype), ratio_text(f.worst));
  text +=
      fmt::format("not equal: {} of {} tensors differ\n{}\n\n", f.differing.size(), f.all.size(), first_line(d));
  observe::Table picture({{"tensor"}, {"error ÷ bound", observe::Align::right}, {""}});
  for (const Case* one : around(f))
    picture.row({one->name, ratio_text(one->worst()),
                 one->worst() <= 1  ? ""
                 : one == f.first() ? "<- first"
                                    : "differs"});
  text += picture.text(terminal) + "\n";
  size_t number = 0;
  for (const Explanation& e : f.explanations) {
    text += fmt::format("{}. {} [{}]\n   {} of the differing tensors are then as found, on all ranks: {}\n",
                        ++number, e.sentence(), e.name(), e.cases.size(), names_of(f, e.cases, 3));
    if (!e.alike.empty()) text += fmt::format("   here the same as: {}\n", alike_text(e));
    if (!e.line.empty()) text += fmt::format("   - {}\n   + {}\n", e.line, e.mutated);
  }
  if (!f.follows.empty())
    text += fmt::format("{} follow from these: {}\n", f.follows.size(), names_of(f, f.follows, 3));
  if (const std::vector<size_t> rest = f.unexplained(); !rest.empty())
    text += fmt::format("{} have no explanation of their own{}: {}\n", rest.size(),
                        f.first()->stage == Stage::forward ? " (they are made of what differs before them)" : "",
                        names_of(f, rest, 5));
  return text;
}

Json report_json(const Dump& dump, const Diagnosis& d) {
  const Findings& f = d.findings();
  const auto finite = [](double x) -> Json { return std::isfinite(x) ? Json(x) : Json(nullptr); };
  Json json{{"equal", f.equal()},
            {"trainer", dump.layout.trainer},
            {"ranks", f.ranks},
            {"tensors", f.tensors},
            {"worst_ratio", finite(f.worst)}};
  json["notes"] = f.notes;
  json["first"] = nullptr;
  if (const Case* first = f.first()) {
    Json ranks = Json::array();
    int rank = -1;
    for (size_t i = 0; i < first->records.size(); ++i) {
      if (first->ratios[i] <= 1) continue;
      ranks.push_back(first->records[i]->rank);
      if (rank < 0) rank = first->records[i]->rank;
    }
    json["first"] = {{"stage", word_of(first->stage)},
                     {"name", first->name},
                     {"microbatch", first->microbatch},
                     {"rank", rank},
                     {"ranks", ranks},
                     {"group", d.group_of(*first)},
                     {"ratio", finite(first->worst())}};
  }
  json["differences"] = Json::array();
  for (const size_t i : f.differing) {
    const Case& one = f.all[i];
    for (size_t r = 0; r < one.records.size(); ++r) {
      if (!(one.ratios[r] <= 1))
        json["differences"].push_back({{"stage", word_of(one.stage)},
                                       {"name", one.name},
                                       {"microbatch", one.microbatch},
                                       {"rank", one.records[r]->rank},
                                       {"ratio", finite(one.ratios[r])}});
    }
  }
  json["faults"] = Json::array();
  for (const Explanation& e : f.explanations) {
    Json names = Json::array(), tensors = Json::array(), alike = Json::array();
    for (const Fault* fault : e.faults) names.push_back({{"name", fault->name}, {"sentence", fault->sentence}});
    for (const size_t i : e.cases) tensors.push_back(f.all[i].text());
    for (const Fault* fault : e.alike) alike.push_back({{"name", fault->name}, {"sentence", fault->sentence}});
    json["faults"].push_back({{"faults", names},
                              {"name", e.name()},
                              {"sentence", e.sentence()},
                              {"tensors", tensors},
                              {"worst_ratio", finite(e.worst)},
                              {"alike", alike},
                              {"line", e.line},
                              {"mutated", e.mutated}});
  }
  const auto texts = [&](const std::vector<size_t>& cases) {
    Json list = Json::array();
    for (const size_t i : cases) list.push_back(f.all[i].text());
    return list;
  };
  json["follows"] = texts(f.follows);
  json["unexplained"] = texts(f.unexplained());
  return json;
}

namespace {

using observe::escape_html;

// The tensors about the first that differs, in the order of the program, one box each.
std::string picture_svg(const Findings& f) {
  const std::vector<const Case*> row = around(f);
  constexpr double kRow = 34, kLeft = 8, kWide = 520;
  std::string boxes;
  double top = 6;
  for (const Case* one : row) {
    const bool differs = !(one->worst() <= 1);
    boxes += fmt::format(
        "<rect class=\"{}\" fill=\"{}\" stroke=\"currentColor\" x=\"{}\" y=\"{:.0f}\" width=\"{}\" height=\"{}\" "
        "rx=\"3\"/>"
        "<text x=\"{}\" y=\"{:.0f}\">{}</text><text x=\"{}\" y=\"{:.0f}\">{}, {}</text>\n",
        differs ? "c1" : "c0", differs ? "currentColor" : "none", kLeft, top, 22, kRow - 12, kLeft + 32, top + 16,
        escape_html(one->name), kLeft + kWide, top + 16, one == f.first() ? "first that differs" : mark_of(*one),
        ratio_text(one->worst()));
    if (one != row.back())
      boxes += fmt::format("<path stroke=\"currentColor\" d=\"M{0} {1:.0f}V{2:.0f}\"/>\n", kLeft + 11,
                           top + kRow - 12, top + kRow);
    top += kRow;
  }
  return observe::open_svg(760, top + 4, "the tensors about the first that differs") + boxes + "</svg>\n";
}

}  // namespace

std::string report_page(const Dump& dump, const Diagnosis& d) {
  const Findings& f = d.findings();
  observe::Page page;
  page.brand = "heddle check";
  page.title = f.equal() ? "Equal to one rank" : "Not equal to one rank";
  page.subtitle = subject_of(dump, f) + ", " + observe::date_text();
  const auto mood = f.equal() ? observe::VerdictCard::Mood::good : observe::VerdictCard::Mood::bad;
  page.head = "<div class=\"cards\">" +
              observe::card_html({"tensors that differ", fmt::format("{} of {}", f.differing.size(), f.all.size()),
                                  "on all ranks together", mood}) +
              observe::card_html({"worst error ÷ bound", ratio_text(f.worst), "up to 1 is equal", mood}) +
              "</div>\n";
  std::string notes;
  for (const std::string& note : f.notes) notes += "<p>" + escape_html(note) + "</p>\n";
  if (!f.equal()) {
    page.add_section(
        "first", "The first that differs",
        observe::panel("<p>" + escape_html(first_line(d)) + "</p>\n<figure>" + picture_svg(f) + "</figure>\n",
                       true));
    std::string faults;
    for (const Explanation& e : f.explanations) {
      faults += fmt::format(
          "<h3>{}</h3>\n<p><code>{}</code>: {} of the differing tensors are then as found: {}</p>\n",
          escape_html(e.sentence()), escape_html(e.name()), e.cases.size(), escape_html(names_of(f, e.cases, 6)));
      if (!e.alike.empty()) faults += "<p>Here the same as: " + escape_html(alike_text(e)) + "</p>\n";
      if (!e.line.empty()) faults += "<pre>- " + escape_html(e.line) + "\n+ " + escape_html(e.mutated) + "</pre>\n";
    }
    page.add_section("faults", "Faults that give what the ranks hold",
                     observe::panel(faults.empty() ? "<p>None was found.</p>\n" : faults, true));
    observe::HtmlTable table{"", {{"tensor", false, true}, {"ranks"}, {"error ÷ bound", true}}, {}};
    for (const size_t i : f.differing) {
      if (table.rows.size() < kMostRows)
        table.rows.push_back({f.all[i].text(), d.ranks_of(f.all[i]), ratio_text(f.all[i].worst())});
    }
    page.add_section("differences", "Tensors that differ", observe::panel(table.html(), true));
  }
  if (!notes.empty()) page.add_section("notes", "Notes", observe::panel(notes, true));
  page.figures_json = report_json(dump, d).dump(-1, ' ', true, Json::error_handler_t::replace);
  return observe::page_html(page);
}

}  // namespace heddle::check
