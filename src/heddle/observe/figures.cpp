#include "heddle/observe/figures.h"

#include <fmt/format.h>

#include <cmath>

#include "heddle/base/error.h"
#include "heddle/observe/units.h"

namespace heddle::observe {

namespace {

std::string with_index(std::string_view pattern, std::string_view index) {
  std::string text(pattern);
  if (const size_t at = text.find("{}"); at != text.npos) text.replace(at, 2, index);
  return text;
}

// The index of a family's key; none where the key is not of the family.
std::optional<std::string> index_in(std::string_view key, std::string_view pattern) {
  const size_t at = pattern.find("{}");
  if (at == pattern.npos) return std::nullopt;
  const std::string_view before = pattern.substr(0, at), after = pattern.substr(at + 2);
  if (key.size() <= before.size() + after.size() || !key.starts_with(before) || !key.ends_with(after))
    return std::nullopt;
  return std::string(key.substr(before.size(), key.size() - before.size() - after.size()));
}

size_t place_of(const Figure& row) {
  const auto at = std::find(std::begin(figures::kRows), std::end(figures::kRows), &row);
  if (at == std::end(figures::kRows)) internal_error("figure '{}' is not in the table", row.key);
  return static_cast<size_t>(at - std::begin(figures::kRows));
}

}  // namespace

std::string Figures::Number::key() const { return with_index(row->key, index); }

double& Figures::of(const Figure& row, std::string_view index) {
  place_of(row);
  if (row.each.empty()) {
    for (auto& [known, value] : single_)
      if (known == &row) return value;
    return single_.emplace_back(&row, 0).second;
  }
  for (Number& number : of_families_)
    if (number.row == &row && number.index == index) return number.value;
  return of_families_.emplace_back(&row, std::string(index), 0).value;
}

void Figures::set_list(const Figure& row, std::vector<double> values) {
  place_of(row);
  std::erase_if(lists_, [&](const List& list) { return list.row == &row; });
  lists_.push_back({&row, std::move(values)});
}

void Figures::erase(const Figure& row) {
  std::erase_if(single_, [&](const auto& each) { return each.first == &row; });
  std::erase_if(of_families_, [&](const Number& number) { return number.row == &row; });
  std::erase_if(lists_, [&](const List& list) { return list.row == &row; });
}

std::optional<double> Figures::get(const Figure& row) const {
  for (const auto& [known, value] : single_)
    if (known == &row) return value;
  return std::nullopt;
}

std::vector<Figures::Number> Figures::family(const Figure& row) const {
  std::vector<Number> found;
  for (const Number& number : of_families_)
    if (number.row == &row) found.push_back(number);
  return found;
}

const std::vector<double>& Figures::list(const Figure& row) const {
  static const std::vector<double> none;
  for (const List& list : lists_)
    if (list.row == &row) return list.values;
  return none;
}

std::vector<Figures::Number> Figures::numbers() const {
  std::vector<Number> all = of_families_;
  for (const auto& [row, value] : single_) all.push_back({row, "", value});
  std::stable_sort(all.begin(), all.end(),
                   [](const Number& a, const Number& b) { return place_of(*a.row) < place_of(*b.row); });
  return all;
}

const Figure* find_figure(std::string_view key, std::string* index) {
  for (const Figure* row : figures::kRows)
    if (row->key == key || (!row->was.empty() && row->was == key)) return row;
  for (const Figure* row : figures::kRows) {
    const std::optional<std::string> found = index_in(key, row->key);
    if (!found) continue;
    if (index != nullptr) *index = *found;
    return row;
  }
  return nullptr;
}

const Figure& figure_of(std::string_view key) {
  const Figure* row = find_figure(key);
  if (row == nullptr) internal_error("no figure is called '{}'", key);
  return *row;
}

std::string text_of(const Figure& row, double value) {
  switch (row.unit) {
    case Unit::plain: return number_text(value, 3);
    case Unit::nats: return std::isfinite(value) ? fmt::format("{:.4f}", value) : number_text(value);
    case Unit::seconds: return duration_text(value);
    case Unit::bytes: return bytes_text(value);
    case Unit::tokens:
    case Unit::count: return count_text(value);
    case Unit::tokens_per_s: return count_text(value, "tok/s");
    case Unit::flops_per_s: return count_text(value, "FLOP/s");
    case Unit::over_mean: return fmt::format("{:.2f}x", value);
    case Unit::share: return fmt::format("{:.1f} %", 100 * value);
    case Unit::step_size: return fmt::format("{:.1e}", value);
  }
  return "";
}

void add_layers(Figures& figures, const FigureGroup& group) {
  for (const Figure* row : figures::kRows) {
    if (row->group != &group || !row->list.empty()) continue;
    double sum = 0;
    bool any = false;
    for (const Figures& layer : figures.layers) {
      any = any || layer.has(*row);
      sum += layer.get(*row, 0);
    }
    if (any) figures.set(*row, sum);
  }
}

}  // namespace heddle::observe
