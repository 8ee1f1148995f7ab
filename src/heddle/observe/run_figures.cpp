#include "heddle/observe/run_figures.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "heddle/base/statistics.h"
#include "heddle/observe/units.h"

namespace heddle::observe {

namespace {

using Figure = std::optional<double> StepMetrics::*;

std::optional<double> median_of(const std::vector<StepMetrics>& steps, Figure figure) {
  std::vector<double> values;
  for (const StepMetrics& step : steps)
    if (const auto& value = step.*figure; value && std::isfinite(*value)) values.push_back(*value);
  if (values.empty()) return std::nullopt;
  return median(std::move(values));
}

std::optional<double> last_of(const std::vector<StepMetrics>& steps, Figure figure) {
  for (auto step = steps.rbegin(); step != steps.rend(); ++step)
    if (const auto& value = (*step).*figure) return value;
  return std::nullopt;
}

}  // namespace

RunFigures figures_of(const std::vector<StepMetrics>& steps) {
  RunFigures f;
  if (steps.empty()) return f;
  f.step = steps.back().step;
  f.loss = last_of(steps, &StepMetrics::lm_loss);
  f.recent_steps = static_cast<int64_t>(std::max<size_t>(1, steps.size() / 50));
  double sum = 0, count = 0;
  for (size_t i = steps.size() - static_cast<size_t>(f.recent_steps); i < steps.size(); ++i) {
    if (const auto& loss = steps[i].lm_loss; loss && std::isfinite(*loss)) sum += *loss, ++count;
  }
  if (count > 0) f.recent_loss = sum / count;
  for (const StepMetrics& step : steps) {
    if (step.held_out_loss) f.held_out_loss = step.held_out_loss, f.held_out_step = step.step;
    const auto& peak = step.arena_reserved_peak_bytes ? step.arena_reserved_peak_bytes : step.arena_live_peak_bytes;
    if (peak) f.reserved_bytes = std::max(f.reserved_bytes.value_or(0), *peak);
  }
  for (const StepMetrics& step : steps) {
    if (!step.copy_rows) continue;
    if (!f.copies) f.copies.emplace();
    for (const CopyField& field : copy_fields()) (*f.copies).*field.of_layer += (step.*field.of_step).value_or(0);
  }
  for (const StepMetrics& step : steps) {
    if (!step.extra.contains(MoveSums::kFields[0].key)) continue;
    if (!f.moves) f.moves.emplace();
    for (const MoveSums::Field& field : MoveSums::kFields) {
      const auto at = step.extra.find(field.key);
      (*f.moves).*field.value += at == step.extra.end() ? 0 : at->second;
    }
  }
  f.tokens = last_of(steps, &StepMetrics::tokens);
  f.trained_s = last_of(steps, &StepMetrics::trained_s);
  f.step_s = median_of(steps, &StepMetrics::step_s);
  f.tokens_per_s = median_of(steps, &StepMetrics::tokens_per_s);
  f.flops_per_s = median_of(steps, &StepMetrics::flops_per_s);
  return f;
}

std::vector<std::pair<std::string, std::string>> copies_facts(const RunFigures& figures) {
  if (!figures.copies) return {};
  const CopyFigures& c = *figures.copies;
  std::string endings;
  for (const auto& [count, what] :
       {std::pair{c.by_counts, "with copies by the counts"},
        std::pair{c.by_history, "with copies by the last steps' loads"},
        std::pair{c.even, "without, the load being even"}, std::pair{c.not_worth, "without, for none paid"}}) {
    if (count > 0) endings += fmt::format("{}{} {}", endings.empty() ? "" : "; ", count_text(count), what);
  }
  return {{"rows that copies took", count_text(c.rows)},
          {c.crossings_saved < 0 ? "rows more that crossed nodes" : "rows kept from crossing nodes",
           count_text(std::abs(c.crossings_saved))},
          {"weights that copies took", bytes_text(c.weight_bytes)},
          {"gradients that copies gave back", bytes_text(c.gradient_bytes)},
          {"choices", endings}};
}

std::vector<std::pair<std::string, std::string>> moves_facts(const RunFigures& figures) {
  if (!figures.moves) return {};
  const MoveSums& m = *figures.moves;
  std::string endings;
  for (const auto& [count, what] : {std::pair{m.made, "that moved some"}, std::pair{m.even, "at an even load"},
                                    std::pair{m.not_worth, "where none would have paid"}}) {
    if (count > 0) endings += fmt::format("{}{} {}", endings.empty() ? "" : "; ", count_text(count), what);
  }
  return {{"experts that moved", count_text(m.experts)},
          {"state that moved with them", bytes_text(m.bytes)},
          {"looks at layers", endings}};
}

namespace {

std::string line_of(const std::vector<std::pair<std::string, std::string>>& facts) {
  std::string line;
  for (const auto& [name, value] : facts) line += fmt::format("{}{} {}", line.empty() ? "" : ", ", name, value);
  return line;
}

}  // namespace

std::string copies_line(const RunFigures& figures) { return line_of(copies_facts(figures)); }
std::string moves_line(const RunFigures& figures) { return line_of(moves_facts(figures)); }

std::string loss_text(double loss) { return std::isfinite(loss) ? fmt::format("{:.4f}", loss) : number_text(loss); }
std::string tokens_rate_text(double tokens_per_s) { return count_text(tokens_per_s, "tok/s"); }
std::string flops_rate_text(double flops_per_s) { return count_text(flops_per_s, "FLOP/s"); }

std::string json_of(const RunFigures& f) {
  nlohmann::ordered_json json;
  json["step"] = f.step;
  const auto add = [&](const char* key, const std::optional<double>& value) {
    if (!value) return;
    if (std::isfinite(*value)) {
      json[key] = *value;
    } else {
      json[key] = number_text(*value);  // JSON has no such numbers
    }
  };
  add("loss", f.loss);
  add("recent_loss", f.recent_loss);
  add("held_out_loss", f.held_out_loss);
  add("tokens", f.tokens);
  add("step_s", f.step_s);
  add("tokens_per_s", f.tokens_per_s);
  add("flops_per_s", f.flops_per_s);
  add("trained_seconds", f.trained_s);
  add("seconds", f.elapsed_s);
  add("reserved_bytes", f.reserved_bytes);
  add("predicted_reserved_bytes", f.predicted_reserved_bytes);
  add("grown_beyond_forecast_bytes", f.grown_bytes);
  if (f.copies) {
    for (const CopyField& field : copy_fields())
      json["copies"][std::string(field.key)] = (*f.copies).*field.of_layer;
  }
  if (f.moves) {
    for (const MoveSums::Field& field : MoveSums::kFields) json["moves"][field.key] = (*f.moves).*field.value;
  }
  return json.dump();
}

}  // namespace heddle::observe
