#include "heddle/planner/budget/budget_text.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "heddle/base/error.h"
#include "heddle/observe/table.h"
#include "heddle/observe/units.h"

namespace heddle::planner {

namespace {

std::string signed_size_text(double bytes) {
  return bytes < 0 ? "-" + observe::bytes_text(-bytes) : observe::bytes_text(bytes);
}
std::string took_text(double us) { return observe::duration_text(us * 1e-6); }

// A bar from one number of bytes to another, on a scale up to `most`.
std::string bar(double from, double to, double most, bool unicode) {
  constexpr double kColumns = 32;
  const auto column = [&](double bytes) { return static_cast<size_t>(std::lround(kColumns * bytes / most)); };
  const size_t begin = column(std::max(0.0, std::min(from, to))), end = column(std::max(from, to));
  std::string text(begin, ' ');
  for (size_t i = begin; i < std::max(end, begin + (from == to ? 0 : 1)); ++i)
    text += unicode ? (to < from ? "░" : "█") : (to < from ? "." : "#");
  return text;
}

}  // namespace

std::vector<std::string> lines_of(const BudgetChoice& choice, int64_t budget_bytes) {
  const std::string price =
      choice.settings.empty()
          ? "nothing is given up"
          : fmt::format("a step of {} predicted, {:+.1f} % over the {} without a budget", took_text(choice.step_us),
                        100 * std::max(0.0, choice.step_us / choice.free_us - 1), took_text(choice.free_us));
  std::vector<std::string> lines{fmt::format("memory.budget {} holds for any routing, {} on the fullest rank: {}",
                                             signed_size_text(static_cast<double>(budget_bytes)),
                                             signed_size_text(static_cast<double>(choice.bytes)), price)};
  for (const std::string& why : choice.why) lines.push_back("  " + why);
  return lines;
}

std::string waterfall_text(const BudgetChoice& choice, int64_t budget_bytes, const observe::Terminal& terminal) {
  observe::Table table(
      {{fmt::format("bytes of pipeline rank {}", choice.fullest)}, {"bytes", observe::Align::right}, {""}});
  double most = static_cast<double>(budget_bytes), sum = 0;
  for (const ByteStep& step : choice.waterfall) most = std::max(most, sum += step.bytes);
  double at = 0;
  bool all = false;
  const auto total = [&](const std::string& name, double bytes) {
    table.row({name, signed_size_text(bytes), bar(0, bytes, most, terminal.unicode)});
  };
  for (const ByteStep& step : choice.waterfall) {
    if (!all && step.of_choice) {
      table.rule();
      total("without a budget", at);
      all = true;
    }
    table.row({observe::cut_to_width(step.name, 60), signed_size_text(step.bytes),
               bar(at, at + step.bytes, most, terminal.unicode)});
    at += step.bytes;
  }
  table.rule();
  total("takes", at);
  total("memory.budget", static_cast<double>(budget_bytes));
  return table.text(terminal);
}

nlohmann::ordered_json json_of(const BudgetChoice& choice, int64_t budget_bytes) {
  nlohmann::ordered_json steps = nlohmann::ordered_json::array();
  for (const ByteStep& step : choice.waterfall)
    steps.push_back({{"name", step.name}, {"bytes", step.bytes}, {"of_choice", step.of_choice}});
  return {{"budget_bytes", budget_bytes},
          {"bytes", choice.bytes},
          {"settings", choice.settings},
          {"why", choice.why},
          {"step_s", choice.step_us * 1e-6},
          {"step_without_s", choice.free_us * 1e-6},
          {"rank_bytes", choice.rank_bytes},
          {"pipeline_rank", choice.fullest},
          {"waterfall", steps},
          {"seconds", choice.seconds},
          {"processor_seconds", choice.processor_seconds},
          {"lowerings", choice.lowerings},
          {"walks", choice.walks},
          {"worked_out", choice.worked_out}};
}

}  // namespace heddle::planner
