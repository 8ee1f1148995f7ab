#include "heddle/cost/routing.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace heddle::cost {

namespace {

// C(E−m, k) ÷ C(E, k).
double none_of(double experts, double m, int64_t k) {
  double chance = 1;
  for (int64_t j = 0; j < k; ++j) {
    const auto taken = static_cast<double>(j);
    chance *= std::max(0.0, experts - m - taken) / std::max(1.0, experts - taken);
  }
  return chance;
}

// m · C(E−m, k−1) ÷ C(E, k).
double one_of(double experts, double m, int64_t k) {
  return k == 0 ? 0 : m * static_cast<double>(k) / experts * none_of(experts - 1, m - 1, k - 1);
}

double binomial(int64_t n, int64_t k) {
  if (k < 0 || k > n) return 0;
  double found = 1;
  for (int64_t i = 0; i < k; ++i) found *= static_cast<double>(n - i) / static_cast<double>(k - i);
  return found;
}

}  // namespace

// By Newton's steps on erfc; |error| < 1e-9 where it is used.
double normal_quantile(double p) {
  double x = 0;
  for (int i = 0; i < 60; ++i) {
    const double below = 0.5 * std::erfc(-x / std::numbers::sqrt2);
    const double density = std::exp(-x * x / 2) / std::sqrt(2 * std::numbers::pi);
    const double step = std::clamp((below - p) / std::max(density, 1e-12), -1.0, 1.0);
    x -= step;
    if (std::abs(step) < 1e-12) break;
  }
  return x;
}

double Routing::fullest(double quantile, int64_t experts, int ranks) const {
  if (ranks <= 1 || experts <= 0 || spread <= 0) return 1;
  const double of_rank = spread * std::sqrt(static_cast<double>(ranks) / static_cast<double>(experts));
  // The fullest of n independent ranks is below x where all of them are.
  const double fullest = 1 + of_rank * normal_quantile(std::pow(quantile, 1.0 / ranks));
  return std::clamp(fullest, 1.0, static_cast<double>(ranks));
}

std::vector<double> Routing::shares(int64_t experts, const RandomKey& key) const {
  std::vector<double> shares(static_cast<size_t>(experts), 1);
  double sum = 0;
  for (size_t e = 0; e < shares.size(); ++e) {
    if (spread > 0) shares[e] = std::max(0.0, 1 + spread * key.normal(e));
    sum += shares[e];
  }
  for (double& share : shares) share = sum > 0 ? share * static_cast<double>(experts) / sum : 1;
  return shares;
}

template <class Of>
double Choice::over_groups(double m, int64_t in_groups, const Of& of) const {
  const auto all = static_cast<double>(experts);
  if (groups <= 1 || chosen_groups >= groups) return of(all, m);
  const int64_t q = std::clamp(in_groups, int64_t{1}, groups);
  const double open = all * static_cast<double>(chosen_groups) / static_cast<double>(groups);
  double mean = 0;
  for (int64_t j = 0; j <= std::min(q, chosen_groups); ++j) {
    const double chance =
        binomial(q, j) * binomial(groups - q, chosen_groups - j) / binomial(groups, chosen_groups);
    if (chance > 0) mean += chance * of(open, m * static_cast<double>(j) / static_cast<double>(q));
  }
  return mean;
}

double Choice::none(double m, int64_t in_groups) const {
  return over_groups(m, in_groups, [&](double of, double part) { return none_of(of, part, chosen); });
}

double Choice::one(double m, int64_t in_groups) const {
  return over_groups(m, in_groups, [&](double of, double part) { return one_of(of, part, chosen); });
}

}  // namespace heddle::cost
