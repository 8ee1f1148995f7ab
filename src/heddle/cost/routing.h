// Evenness with which a router spreads rows over experts, and the rows that a group of experts can expect.
//
// E experts, k a token, chosen without repetition; m: experts looked at, or the sum of their shares over the mean.
// The chance that none of m is chosen is C(E−m, k) ÷ C(E, k), which goes on between whole numbers. With choices
// limited to some of several groups of experts it is the mean over those groups.
#pragma once

#include <cstdint>
#include <vector>

#include "heddle/base/random.h"

namespace heddle::cost {

/// Quantile of the standard normal distribution.
double normal_quantile(double p);

/// Each expert's share is its mean times a normal variable of this relative deviation, independently. From it
/// follows the fullest of `ranks` expert ranks, the more uneven the fewer experts a rank has. 0.13 puts its median
/// at the 1.15 that published runs with natural routing show at 64 ranks of 4.
struct Routing {
  double spread = 0.13;

  /// Quantile of (rows of the fullest rank) ÷ (mean).
  double fullest(double quantile, int64_t experts, int ranks) const;
  /// A draw of all experts' shares over the mean: none below 0, their mean is 1.
  std::vector<double> shares(int64_t experts, const RandomKey& key) const;
};

/// The choice of a token.
struct Choice {
  int64_t experts = 1, chosen = 1;
  int64_t groups = 1, chosen_groups = 1;

  /// Chance that none of m experts in `in_groups` groups is chosen; that one alone is.
  double none(double m, int64_t in_groups = 1) const;
  double one(double m, int64_t in_groups = 1) const;

 private:
  template <class Of>
  double over_groups(double m, int64_t in_groups, const Of& of) const;
};

}  // namespace heddle::cost
