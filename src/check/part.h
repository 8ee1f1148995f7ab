// Two implementations of a model beside each other: the error of each of their ops, and its share in the gap of
// their log-probabilities.
//
// A cumulative run is Heddle's forward pass in fp64 in which the first i tapped values are an implementation's own.
// The next value is then computed in fp64 from the implementation's own operands, so the step from i − 1 to i adds
// the error of that op alone. The steps of both add up to the gap between the two.
#pragma once

#include <string>
#include <vector>

#include "check/dump.h"

namespace heddle::check {

struct OpError {
  std::string name;
  int microbatch = -1;       // −1: over all
  double units[2] = {0, 0};  // error against fp64, in units of what the dtype of that dump allows
  bool tapped[2] = {false, false};
  double own = 0;    // mean over the labels of |change of the gap| that the op itself makes, in nats
  double share = 0;  // of the gap, signed: they add up to 1
};

struct Parting {
  std::vector<OpError> ops;     // in program order
  double gap = 0;               // mean over labels of |log p of A − log p of B|
  double most = 0;              // the largest
  double to_exact[2] = {0, 0};  // mean |log p − log p in fp64| of each
  int64_t labels = 0;
};

/// Both dumps are of one model, of the same weights and tokens. ConfigError where they are not.
Parting part(Dump& a, Dump& b);

}  // namespace heddle::check
