#include "heddle/observe/run_figures.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "heddle/base/statistics.h"
#include "heddle/observe/units.h"

namespace heddle::observe {

namespace {

using nlohmann::ordered_json;

std::vector<double> finite_values(const std::vector<StepMetrics>& steps, size_t from, const Figure& row) {
  std::vector<double> values;
  for (size_t i = from; i < steps.size(); ++i)
    if (const auto value = steps[i].get(row); value && std::isfinite(*value)) values.push_back(*value);
  return values;
}

std::optional<double> over_steps(const std::vector<StepMetrics>& steps, const Figure& row, OverSteps how) {
  std::optional<double> result;
  switch (how) {
    case OverSteps::none: break;
    case OverSteps::last:
    case OverSteps::step_of_last:
      for (auto step = steps.rbegin(); step != steps.rend() && !result; ++step) {
        result = step->get(row);
        if (result && how == OverSteps::step_of_last) result = static_cast<double>(step->step);
      }
      break;
    case OverSteps::sum:
    case OverSteps::worst:
      for (const StepMetrics& step : steps) {
        const auto value = step.get(row);
        if (!value) continue;
        result = !result ? *value : how == OverSteps::sum ? *result + *value : std::max(*result, *value);
      }
      break;
    case OverSteps::median:
      if (std::vector<double> values = finite_values(steps, 0, row); !values.empty())
        result = median(std::move(values));
      break;
    case OverSteps::recent: {
      const std::vector<double> values = finite_values(steps, steps.size() - recent_steps(steps.size()), row);
      double sum = 0;
      for (const double value : values) sum += value;
      if (!values.empty()) result = sum / static_cast<double>(values.size());
      break;
    }
  }
  return result;
}

bool is_whole(Unit unit) { return unit == Unit::bytes || unit == Unit::count || unit == Unit::tokens; }

ordered_json number_json(const Figure& row, double value, JsonOf what) {
  if (!std::isfinite(value)) return what == JsonOf::all ? ordered_json() : ordered_json(number_text(value));
  if (is_whole(row.unit) && value == std::floor(value) && std::abs(value) < 9e15)
    return static_cast<int64_t>(value);
  return value;
}

}  // namespace

size_t recent_steps(size_t steps) { return std::min(steps, std::max<size_t>(1, steps / 50)); }

RunFigures figures_of(const std::vector<StepMetrics>& steps) {
  RunFigures f;
  if (steps.empty()) return f;
  f.step = steps.back().step;
  for (const Figure* row : figures::kRows)
    if (const auto value = over_steps(steps, row->of != nullptr ? *row->of : *row, row->over_steps))
      f.set(*row, *value);
  return f;
}

std::vector<std::pair<std::string, std::string>> facts_of(const Figures& figures, const FigureGroup* group) {
  std::vector<std::pair<std::string, std::string>> facts;
  for (const Figure* row : figures::kRows) {
    const Figure::Fact& fact = row->fact;
    const auto value = row->group == group && !fact.name.empty() ? figures.get(*row) : std::nullopt;
    if (!value) continue;
    if (fact.words.empty()) {
      const bool below = *value < 0 && !fact.if_below.empty();
      facts.emplace_back(below ? fact.if_below : fact.name, text_of(*row, below ? -*value : *value));
      continue;
    }
    if (facts.empty() || facts.back().first != fact.name) facts.emplace_back(fact.name, "");
    std::string& text = facts.back().second;
    if (*value > 0) text += fmt::format("{}{} {}", text.empty() ? "" : "; ", text_of(*row, *value), fact.words);
  }
  return facts;
}

std::string line_of(const Figures& figures, const FigureGroup* group) {
  std::string line;
  for (const auto& [name, value] : facts_of(figures, group))
    line += fmt::format("{}{} {}", line.empty() ? "" : ", ", name, value);
  return line;
}

std::string json_of(const RunFigures& f, JsonOf what) {
  ordered_json json;
  if (what == JsonOf::present) json["step"] = f.step;
  for (const Figure* row : figures::kRows) {
    if (row->in_run.empty()) continue;
    const std::string name(row->in_run);
    const auto value = f.get(*row);
    if (row->group != nullptr) {
      if (value) json[std::string(row->group->key)][name] = number_json(*row, *value, what);
    } else if (value) {
      json[name] = number_json(*row, *value, what);
    } else if (what == JsonOf::all && row->over_steps != OverSteps::none) {
      json[name] = row->unit == Unit::nats ? ordered_json() : ordered_json(0);
    }
  }
  return json.dump();
}

}  // namespace heddle::observe
