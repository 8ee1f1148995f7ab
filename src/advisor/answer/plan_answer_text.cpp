#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <string_view>

#include "advisor/answer/plan_answer.h"
#include "advisor/script/emit.h"
#include "heddle/observe/plans/plan_figures.h"
#include "heddle/observe/table.h"
#include "heddle/observe/units.h"

namespace heddle::advisor {

namespace {

using observe::bytes_text;
using observe::count_text;
using observe::duration_text;

constexpr int kUsualColumns = 100;
constexpr size_t kMostRanks = 8;

class Page {
 public:
  explicit Page(const observe::Terminal& terminal)
      : terminal_(terminal), columns_(terminal.columns > 0 ? std::min(terminal.columns, 120) : kUsualColumns) {}

  void prose(const std::string& text) {
    for (const std::string& line : observe::wrapped(text, columns_)) out_ += line + "\n";
  }
  /// A name in a column of its own, and what is said of it.
  void fact(const std::string& name, const std::string& text) {
    constexpr int kNames = 14;
    std::string left = name;
    for (const std::string& line : observe::wrapped(text, std::max(20, columns_ - kNames))) {
      out_ += fmt::format("{:<{}}{}\n", left, kNames, line);
      left.clear();
    }
  }
  /// Words as a shell takes them over several lines.
  void words(const std::vector<std::string>& words) {
    std::string line = " ";
    for (size_t i = 0; i < words.size(); ++i) {
      if (line.size() > 1 && observe::display_width(line + words[i]) + 3 > columns_) {
        out_ += line + " \\\n";
        line = " ";
      }
      line += " " + words[i];
    }
    if (!words.empty()) out_ += line + "\n";
  }
  void table(const observe::Table& table) { out_ += table.text(terminal_.unicode, columns_); }
  void gap() { out_ += "\n"; }
  std::string text() const { return out_; }

 private:
  observe::Terminal terminal_;
  int columns_;
  std::string out_;
};

const char* trainer_text(const std::string& target) {
  return target == "megatron" ? "Megatron-LM" : target == "mindspeed" ? "MindSpeed" : "Heddle";
}

std::string gain_text(double speed_ratio) { return observe::change_text(speed_ratio); }

// "--micro-batch-size 2, without --recompute-granularity"
std::string words_text(const std::vector<std::string>& add, const std::vector<std::string>& remove) {
  std::vector<std::string> all = add;
  for (const std::string& name : remove) all.push_back("without " + name);
  return fmt::format("{}", fmt::join(all, ", "));
}

void print_head(const PlanAnswer& a, Page& page) {
  const std::string where = a.counted
                                ? (a.devices > 1 ? fmt::format("{} ranks of {}", a.devices, a.device) : a.device)
                                : fmt::format("{} x {}", a.devices, a.device);
  page.prose(fmt::format("{} on {}{}: {} of {} tokens a step, {}{}", a.model, where,
                         a.place.empty() ? "" : fmt::format(" ({}, {})", a.place, trainer_text(a.target)),
                         a.global_batch, a.sequence, a.precision,
                         a.parameters > 0
                             ? fmt::format("; {} parameters, {}{} a token", count_text(a.parameters),
                                           a.active_parameters < a.parameters
                                               ? fmt::format("{} of them and ", count_text(a.active_parameters))
                                               : "",
                                           count_text(a.flops_per_token, "FLOP"))
                             : ""));
  if (!a.assumed.empty()) page.prose(fmt::format("assumed: {}", fmt::join(a.assumed, ", ")));
  for (const std::string& note : a.notes) page.prose("note: " + note);
  page.gap();
}

// Model FLOPs over the peak of 16-bit products, whatever the products' own precision.
std::string utilization_text(const PlanAnswer& a) {
  const bool narrow = !a.counted && a.precision != "bf16" && a.precision != "fp16";
  return observe::percent_text(a.model_flops_utilization) + (narrow ? " of bf16's peak" : "");
}

void print_ranks(const PlanAnswer& a, Page& page) {
  struct Row {
    int first, last;
    int64_t ranks;
    double bytes;
    bool fits;
  };
  std::vector<Row> rows;
  for (const RankBytes& r : a.ranks) {
    if (!rows.empty() && bytes_text(rows.back().bytes) == bytes_text(r.peak_bytes)) {
      rows.back().last = r.pipeline_rank;
      rows.back().ranks += r.ranks;
      continue;
    }
    rows.push_back({r.pipeline_rank, r.pipeline_rank, r.ranks, r.peak_bytes, r.fits});
  }
  size_t left = 0;
  if (rows.size() > kMostRanks) {  // the fullest, in their order
    std::vector<double> bytes;
    for (const Row& row : rows) bytes.push_back(row.bytes);
    std::nth_element(bytes.begin(), bytes.begin() + kMostRanks - 1, bytes.end(), std::greater<>());
    const double least = bytes[kMostRanks - 1];
    left = rows.size();
    std::erase_if(rows, [&](const Row& row) { return row.bytes < least; });
    left -= rows.size();
  }
  observe::Table table({{"pipeline rank"},
                        {"devices", observe::Align::right},
                        {"at the peak", observe::Align::right},
                        {"of", observe::Align::right},
                        {"fits"}});
  for (const Row& row : rows)
    table.row({row.first == row.last ? fmt::format("{}", row.first) : fmt::format("{} to {}", row.first, row.last),
               fmt::format("{}", row.ranks), bytes_text(row.bytes), bytes_text(a.memory_bytes),
               row.fits ? "yes" : "no"});
  page.table(table);
  if (left > 0) page.prose(fmt::format("{} further groups of ranks need less", left));
  page.gap();
}

void print_changes(const PlanAnswer& a, Page& page) {
  if (a.changes.empty()) {
    page.prose(a.fits ? "No single change was found that the trainer can run and that fits."
                      : "No single change makes it fit.");
    page.gap();
    return;
  }
  const bool gains = a.changes.front().speed_ratio > 1.0005;
  observe::Table table({{a.fits ? "one change" : "one change that makes it fit"},
                        {"tokens/s", observe::Align::right},
                        {"memory", observe::Align::right},
                        {a.target == "heddle" ? "--set" : "flags"}});
  for (const PlanChange& c : a.changes)
    table.row({c.change, gain_text(c.speed_ratio), bytes_text(c.peak_bytes), words_text(c.add, c.remove)});
  page.table(table);
  if (a.fits && !gains) page.prose("No single change is faster; these cost least.");
  page.gap();
}

// A job that has no plan has no speed; one that exceeds the memory has the speed of its estimate.
void print_beside(const PlanAnswer& a, Page& page) {
  const BesideJob& b = *a.beside;
  if (b.tokens_per_s <= 0)
    return page.fact("beside", fmt::format("{}: nothing fits, so there is no speed to compare", b.subject));
  page.fact("beside",
            fmt::format("{}: {} tokens/s, {} at the peak{}{}", b.subject, count_text(b.tokens_per_s),
                        bytes_text(b.peak_bytes), b.fits ? "" : ", which does not fit",
                        a.found ? fmt::format("; this has {} of its speed",
                                              observe::percent_text(a.tokens_per_s.value / b.tokens_per_s))
                                : ""));
}

std::string nothing_text(const PlanAnswer& a) {
  if (a.nearest.empty())
    return fmt::format("No layout divides the model and {} sequences over {} devices.", a.global_batch, a.devices);
  return fmt::format("Nothing fits {} a device; the nearest: {}.", bytes_text(a.memory_bytes), a.nearest);
}

void print_better(const PlanAnswer& a, Page& page) {
  if (!a.better) return;
  const BetterPlan& b = *a.better;
  page.fact("all together",
            fmt::format("{}, {}: {} tokens/s ({}), {} at the peak; found among {} plans", b.layout, b.schedule,
                        count_text(b.tokens_per_s), gain_text(b.speed_ratio), bytes_text(b.peak_bytes),
                        observe::grouped_text(static_cast<long long>(a.searched))));
  page.fact("", words_text(b.add, b.remove));
  page.gap();
}

// A setting as a shell takes it: most have no character that it reads more into.
std::string quoted_where_needed(const std::string& word) {
  const bool plain = std::all_of(word.begin(), word.end(), [](unsigned char c) {
    return std::isalnum(c) != 0 ||
           std::string_view("._=,:/+-").find(static_cast<char>(c)) != std::string_view::npos;
  });
  return plain ? word : shell_quoted(word);
}

void print_typed(const PlanAnswer& a, Page& page) {
  if (a.kind != PlanKind::model) return;  // the job's words stand in its file
  for (const TypedWords& t : a.typed) {
    if (!t.refusal.empty()) {
      page.prose(fmt::format("{} can't run it: {}", trainer_text(t.program), t.refusal));
      continue;
    }
    page.prose(fmt::format("{}:", trainer_text(t.program)));
    std::vector<std::string> words = t.words;
    if (t.program == "heddle")
      for (std::string& word : words) word = "--set " + quoted_where_needed(word);
    page.words(words);
  }
}

}  // namespace

std::string fewest_text(const PlanAnswer& a) {
  if (a.fewest_devices < a.devices)
    return fmt::format("{} x {} train it, in stages that do not divide {}.", a.fewest_devices, a.device, a.devices);
  return fmt::format("{} x {} are the fewest that train it.", a.fewest_devices, a.device);
}

std::string text_of(const PlanAnswer& a, const observe::Terminal& terminal) {
  Page page(terminal);
  print_head(a, page);
  if (!a.found || !a.nearest.empty()) {
    page.prose(nothing_text(a));
    if (a.fewest_devices > 0) page.prose(fewest_text(a));
    if (!a.found) {
      if (a.beside) print_beside(a, page);
      return page.text();
    }
    page.gap();
  }
  page.fact("layout", fmt::format("{}{}{}", a.layout, a.schedule.empty() ? "" : ", " + a.schedule,
                                  a.keeping.empty() ? "" : ", recompute " + a.keeping));
  if (!a.stages.empty()) page.fact("stages", a.stages);
  page.fact("speed",
            fmt::format("{} tokens/s ({} to {}), {:.0f} a device; a step of {} ({} to {}){}",
                        count_text(a.tokens_per_s.value), count_text(a.tokens_per_s.low),
                        count_text(a.tokens_per_s.high), a.tokens_per_s_per_device(), duration_text(a.step_s.value),
                        duration_text(a.step_s.low), duration_text(a.step_s.high),
                        a.model_flops_utilization > 0 ? ", MFU " + utilization_text(a) : ""));
  page.fact("", "the range holds " + a.interval_from);
  page.fact("memory",
            fmt::format("{}: {} of {} on the fullest rank ({})", a.fits ? "fits" : "does not fit",
                        bytes_text(a.peak_bytes), bytes_text(a.memory_bytes), a.counted ? "counted" : "estimated"));
  if (!a.memory.empty()) {
    std::vector<std::string> parts;
    for (const NamedBytes& part : a.memory)
      parts.push_back(fmt::format("{} {}", part.name, bytes_text(part.bytes)));
    page.fact("", fmt::format("{}", fmt::join(parts, ", ")));
  }
  if (!a.bound_by.empty()) page.fact("bound by", fmt::format("{}: {}", a.bound_by, a.bound_why));
  if (a.beside) print_beside(a, page);
  page.gap();
  print_ranks(a, page);
  print_changes(a, page);
  print_better(a, page);
  print_typed(a, page);
  return page.text();
}

}  // namespace heddle::advisor
