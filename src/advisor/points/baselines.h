// Predictors that know nothing of how a step divides, to hold estimates against: fitted on the same measured rows.
//   `utilization`  The median utilization of the peak of the device in the precision, else on the device, else of
//                  all rows.
//   `nearest`      The utilization of the most alike row.
//   `ridge`        Ridge regression of the logarithm of utilization on logarithms of sizes and degrees, with a term
//                  for each device and precision (Hoerl and Kennard, Technometrics 12, 1970).
#pragma once

#include <string_view>
#include <vector>

#include "advisor/points/prediction.h"

namespace heddle::advisor {

enum class Baseline { utilization, nearest, ridge };
inline constexpr Baseline kBaselines[] = {Baseline::utilization, Baseline::nearest, Baseline::ridge};
std::string_view name_of(Baseline baseline);

/// Tokens a second and device of each measured row (`has_time`), by a predictor that has not seen its group. In the
/// order of the rows; 0 for the other rows.
std::vector<double> predict_held_out(const std::vector<PredictedPoint>& points, Baseline baseline, HoldOut by);

}  // namespace heddle::advisor
