// Regression by a Gaussian process: of values at points whose covariances are known, the mean and variance at any
// other point. Rasmussen and Williams, Gaussian Processes for Machine Learning, 2006, algorithm 2.1.
//
// A value that is far from the others' expectation of it counts as noisier than the rest. Its noise grows with the
// square of that distance, in units of the expected deviation. So a few odd values pull little.
#pragma once

#include <cstddef>
#include <vector>

namespace heddle::advisor {

struct Expected {
  double mean = 0;
  double deviation = 0;  // standard, with noise
};

class GaussianProcess {
 public:
  GaussianProcess() = default;
  /// `covariances`: rows of the symmetric matrix of the values, without noise. `noise`: of each value.
  GaussianProcess(const std::vector<double>& covariances, std::vector<double> noise,
                  const std::vector<double>& values);

  /// Finds the noise of each value: that of `noise` where it agrees with the others, more where it is far off.
  static std::vector<double> noise_of(const std::vector<double>& covariances, const std::vector<double>& noise,
                                      const std::vector<double>& values);

  /// At a point of the given variance and covariances with the values; `noise` is added to its variance.
  Expected at(const std::vector<double>& covariances, double variance, double noise) const;

  /// Returns the expectation of each value by a process that knows no value of its group, in closed form (section
  /// 5.4.2 for groups of one). `noise`: of each, were it a new value.
  std::vector<Expected> held_out(const std::vector<size_t>& group, const std::vector<double>& noise) const;

  size_t size() const { return weights_.size(); }

 private:
  std::vector<double> factor_;  // lower triangle of the Cholesky factor, row by row
  std::vector<double> noise_, values_, weights_;
};

}  // namespace heddle::advisor
