// How far numbers are from others.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

namespace heddle::test {

/// |a − b| ÷ |b|, Euclidean; infinite where they are not as many.
inline double relative(const std::vector<double>& a, const std::vector<double>& b) {
  if (a.size() != b.size()) return INFINITY;
  double difference = 0, norm = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    difference += (a[i] - b[i]) * (a[i] - b[i]);
    norm += b[i] * b[i];
  }
  return std::sqrt(difference / std::max(norm, 1e-300));
}

}  // namespace heddle::test
