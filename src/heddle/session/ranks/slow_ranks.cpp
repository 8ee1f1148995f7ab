#include "heddle/session/ranks/slow_ranks.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <utility>

#include "heddle/base/statistics.h"

namespace heddle::session {

namespace {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
constexpr double kOfNormal = 1.4826;      // a standard deviation over the median of absolute deviations
constexpr double kOfMedian = 1.2533;      // the error of a median over that of a mean
constexpr double kLeastDeviation = 0.01;  // a share of the median: clocks and caches

double deviation_of(const std::vector<double>& values, double middle) {
  std::vector<double> away;
  for (const double value : values) away.push_back(std::abs(value - middle));
  return kOfNormal * median(std::move(away));
}

// The median; for an even count the mean of both middle values.
double centre_of(std::vector<double> values) { return quantile(std::move(values), 0.5); }

}  // namespace

double chance_of(const std::vector<double>& numbers) {
  return kOfMedian * deviation_of(numbers, centre_of(numbers)) / std::sqrt(static_cast<double>(numbers.size()));
}

std::string_view name_of(WorkKind kind) {
  constexpr std::array<std::string_view, kWorkKinds> kNames{"forward", "backward", "update", "experts"};
  return kNames[static_cast<size_t>(kind)];
}

SlowRanks::SlowRanks(std::vector<int> cohorts)
    : cohorts_(std::move(cohorts)),
      of_(cohorts_.size()),
      rows_(cohorts_.size(), 0),
      states_(cohorts_.size()),
      ratios_(cohorts_.size()) {
  for (auto& ratios : ratios_) ratios.fill(kNone);
}

bool SlowRanks::add(int64_t step, std::span<const train::RankWork> work) {
  found_.clear();
  ended_.clear();
  if (work.size() != of_.size()) return false;
  if (of_[0][0].empty()) first_ = step;
  for (size_t r = 0; r < work.size(); ++r) {
    const train::RankWork& w = work[r];
    const double by_row = w.expert_rows > 0 ? w.experts_s / w.expert_rows : kNone;
    const std::array<double, kWorkKinds> numbers{w.forward_s, w.backward_s, w.update_s, by_row};
    for (size_t k = 0; k < kWorkKinds; ++k) of_[r][k].push_back(numbers[k]);
    rows_[r] += w.expert_rows;
  }
  if (std::ssize(of_[0][0]) < kWindow) return false;
  std::map<int, std::vector<size_t>> cohorts;
  for (size_t r = 0; r < cohorts_.size(); ++r) cohorts[cohorts_[r]].push_back(r);
  for (const auto& [number, ranks] : cohorts) {
    for (size_t k = 0; k < kWorkKinds; ++k) judge(static_cast<WorkKind>(k), ranks);
  }
  for (auto& kinds : of_) {
    for (std::vector<double>& numbers : kinds) numbers.clear();
  }
  std::fill(rows_.begin(), rows_.end(), 0);
  return true;
}

void SlowRanks::judge(WorkKind kind, const std::vector<size_t>& cohort) {
  const auto k = static_cast<size_t>(kind);
  std::vector<std::pair<size_t, double>> medians;  // medians of the ranks that can be judged
  std::vector<double> errors;
  for (const size_t r : cohort) {
    ratios_[r][k] = kNone;
    std::vector<double> numbers = of_[r][k];
    std::erase_if(numbers, [](double number) { return std::isnan(number) || number <= 0; });
    if (2 * std::ssize(numbers) < kWindow) continue;
    const double centre = centre_of(numbers);
    medians.emplace_back(r, centre);
    errors.push_back(chance_of(numbers));
  }
  if (medians.size() < 2) return;
  for (const auto& [r, own] : medians) {
    std::vector<double> others;
    for (const auto& [other, centre] : medians) {
      if (other != r) others.push_back(centre);
    }
    const double usual = centre_of(others);
    const double chance = std::max({kLeastDeviation * usual, deviation_of(others, usual), centre_of(errors)});
    ratios_[r][k] = own / usual;
    const bool is_slow = own > (1 + kLeastExcess) * usual && own - usual > kBeyondChance * chance;
    double excess = own - usual;
    if (kind == WorkKind::experts) excess *= rows_[r] / static_cast<double>(kWindow);
    judge(states_[r][k], {static_cast<int>(r), kind, first_, own / usual, excess}, is_slow);
  }
}

void SlowRanks::judge(State& state, const SlowRank& now, bool is_slow) {
  state.suspected_s = is_slow ? now.excess_s : 0;
  if (is_slow) {
    if (state.slow_windows++ == 0) state.since = now.since;
    state.quick_windows = 0;
  } else {
    state.slow_windows = 0;
    ++state.quick_windows;
  }
  const bool was = state.slow.has_value();
  if (is_slow && (was || state.slow_windows >= kWindows)) {
    const int64_t since = was ? state.slow->since : state.since;
    state.slow = now;
    state.slow->since = since;
    if (!was) found_.push_back(*state.slow);
  } else if (was && state.quick_windows >= kWindows) {
    ended_.push_back(*std::exchange(state.slow, std::nullopt));
  }
}

std::vector<SlowRank> SlowRanks::slow() const {
  std::vector<SlowRank> all;
  for (const auto& kinds : states_) {
    for (const State& state : kinds) {
      if (state.slow) all.push_back(*state.slow);
    }
  }
  return all;
}

double SlowRanks::suspected_s() const {
  double most_s = 0;
  for (const auto& kinds : states_) {
    double s = 0;
    for (const State& state : kinds) s += state.suspected_s;
    most_s = std::max(most_s, s);
  }
  return most_s;
}

}  // namespace heddle::session
