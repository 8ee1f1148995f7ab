// A tensor of a dump beside the reference: its error, and the bound that the reference's runs with random rounding
// give it.
#pragma once

#include "check/reference.h"

namespace heddle::check {

/// The relative rounding of a store.
double unit_of(Dtype dtype);
/// Returns that of the difference of two tensors, or of one.
double root_mean_square(const Numbers& a, const Numbers& b);
double root_mean_square(const Numbers& a);

/// One tensor of one rank beside the reference.
struct Difference {
  const Record* record = nullptr;
  double error = 0, bound = 0;  // root mean squares over the slice
  double row_ratio = 0;         // the worst row's error over what a row may have
  /// More than 1: not equal.
  double ratio() const;
};

/// The bound of a slice of a whole tensor, as a root mean square; `weight`: elementwise, of updated weights.
Difference compared(const Record& record, const Reference& reference);
/// A slice compared with other values than the reference's, under the same bound.
double ratio_to(const Numbers& predicted, const Record& record, const Reference& reference);

}  // namespace heddle::check
