#include "advisor/points/gaussian_process.h"

#include <algorithm>
#include <cmath>
#include <map>

namespace heddle::advisor {

namespace {

// In eight sums, which do not wait for each other.
double dot(const double* a, const double* b, size_t n) {
  constexpr size_t kSums = 8;
  double sums[kSums] = {};
  size_t i = 0;
  for (; i + kSums <= n; i += kSums)
    for (size_t k = 0; k < kSums; ++k) sums[k] += a[i + k] * b[i + k];
  for (size_t k = 0; i + k < n; ++k) sums[k] += a[i + k] * b[i + k];
  return ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
}

// Square matrices lie row by row.
std::vector<double> cholesky(std::vector<double> a, size_t n) {
  for (size_t i = 0; i < n; ++i) {
    double* row = &a[i * n];
    for (size_t j = 0; j < i; ++j) row[j] = (row[j] - dot(row, &a[j * n], j)) / a[j * n + j];
    row[i] = std::sqrt(std::max(1e-12, row[i] - dot(row, row, i)));
    std::fill(row + i + 1, row + n, 0.0);
  }
  return a;
}

// Solves L y = b in place.
void forward(const std::vector<double>& l, size_t n, double* b) {
  for (size_t i = 0; i < n; ++i) b[i] = (b[i] - dot(&l[i * n], b, i)) / l[i * n + i];
}

// Solves L' x = y in place.
void backward(const std::vector<double>& l, size_t n, double* y) {
  for (size_t i = n; i-- > 0;) {
    y[i] /= l[i * n + i];
    for (size_t k = 0; k < i; ++k) y[k] -= l[i * n + k] * y[i];
  }
}

// The inverse of L L'.
std::vector<double> inverse(const std::vector<double>& l, size_t n) {
  // Column c of L's inverse, as row c of `down`.
  std::vector<double> down(n * n, 0.0), all(n * n);
  for (size_t c = 0; c < n; ++c) {
    double* x = &down[c * n];
    x[c] = 1 / l[c * n + c];
    for (size_t i = c + 1; i < n; ++i) x[i] = -dot(&l[i * n + c], x + c, i - c) / l[i * n + i];
  }
  for (size_t i = 0; i < n; ++i)
    for (size_t j = 0; j <= i; ++j)
      all[i * n + j] = all[j * n + i] = dot(&down[i * n] + i, &down[j * n] + i, n - i);
  return all;
}

}  // namespace

GaussianProcess::GaussianProcess(const std::vector<double>& covariances, std::vector<double> noise,
                                 const std::vector<double>& values)
    : noise_(std::move(noise)), values_(values), weights_(values) {
  const size_t n = values.size();
  std::vector<double> a = covariances;
  for (size_t i = 0; i < n; ++i) a[i * n + i] += noise_[i];
  factor_ = cholesky(std::move(a), n);
  forward(factor_, n, weights_.data());
  backward(factor_, n, weights_.data());
}

std::vector<double> GaussianProcess::noise_of(const std::vector<double>& covariances,
                                              const std::vector<double>& noise, const std::vector<double>& values) {
  constexpr int kRounds = 3;
  constexpr double kAgrees = 1.5, kLeastDeviation = 0.03, kMostNoise = 400;
  const size_t n = values.size();
  std::vector<double> noises = noise;
  std::vector<size_t> alone(n);
  for (size_t i = 0; i < n; ++i) alone[i] = i;
  for (int round = 0; round < kRounds; ++round) {
    const GaussianProcess process(covariances, noises, values);
    const std::vector<double> inverted = inverse(process.factor_, n);
    for (size_t i = 0; i < n; ++i) {
      const double variance = 1 / inverted[i * n + i], off = process.weights_[i] * variance;
      const double away = std::abs(off) / std::max(kLeastDeviation, std::sqrt(variance)) / kAgrees;
      noises[i] = noise[i] * std::clamp(away * away, 1.0, kMostNoise);
    }
  }
  return noises;
}

Expected GaussianProcess::at(const std::vector<double>& covariances, double variance, double noise) const {
  const size_t n = size();
  std::vector<double> v = covariances;
  const double mean = dot(v.data(), weights_.data(), n);
  forward(factor_, n, v.data());
  return {mean, std::sqrt(std::max(0.0, variance - dot(v.data(), v.data(), n)) + noise)};
}

std::vector<Expected> GaussianProcess::held_out(const std::vector<size_t>& group,
                                                const std::vector<double>& noise) const {
  const size_t n = size();
  const std::vector<double> inverted = inverse(factor_, n);
  std::map<size_t, std::vector<size_t>> members;
  for (size_t i = 0; i < n; ++i) members[group[i]].push_back(i);
  std::vector<Expected> all(n);
  for (const auto& [name, of] : members) {
    // The block of the inverse that belongs to the group, inverted, is its covariance given the others.
    const size_t m = of.size();
    std::vector<double> block(m * m), off(m);
    for (size_t i = 0; i < m; ++i) {
      off[i] = weights_[of[i]];
      for (size_t k = 0; k < m; ++k) block[i * m + k] = inverted[of[i] * n + of[k]];
    }
    const std::vector<double> l = cholesky(std::move(block), m);
    const std::vector<double> given = inverse(l, m);
    forward(l, m, off.data());
    backward(l, m, off.data());
    for (size_t i = 0; i < m; ++i) {
      const double variance = given[i * m + i] - noise_[of[i]];
      all[of[i]] = {values_[of[i]] - off[i], std::sqrt(std::max(0.0, variance) + noise[of[i]])};
    }
  }
  return all;
}

}  // namespace heddle::advisor
