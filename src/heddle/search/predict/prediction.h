// Predictions for a table of points, and how far they are off: each measured row is predicted once with a
// calibration that has not seen it, nor (by models) any row of its model.
#pragma once

#include <string>
#include <vector>

#include "heddle/search/predict/calibration.h"
#include "heddle/search/predict/points.h"

namespace heddle::search {

struct PredictedPoint {
  PointJob point;
  Estimate estimate;                                          // uncalibrated
  std::string model;                                          // one name for all its spellings and proxies
  double measured_tokens_per_s = 0, measured_peak_bytes = 0;  // 0: not measured
  bool has_memory = false;
  double tokens_per_s = 0;  // calibrated; 0: no prediction
  std::string reason;       // why there is none, or what was assumed
  bool complete = false;    // the row has dimensions, layout and batch
};

/// One prediction a row, calibrated by `calibration`.
std::vector<PredictedPoint> predict_points(const PointTable& table, const Calibration& calibration);

/// How rows are held out: by a fifth of the rows at a time, drawn by a hash of the row, or by whole models.
enum class HoldOut { rows, models };

/// Puts predictions in place that were calibrated without the row (or its model).
void hold_out(std::vector<PredictedPoint>& points, const PointTable& table, HoldOut by);

/// Calibration of all measured rows.
Calibration calibrate(const std::vector<PredictedPoint>& points);

struct ErrorSummary {
  size_t rows = 0;
  double median = 0, p90 = 0;
};
/// |predicted ÷ measured − 1| over the measured and predicted rows.
ErrorSummary time_errors(const std::vector<PredictedPoint>& points);
ErrorSummary memory_errors(const std::vector<PredictedPoint>& points);
/// The same for a predictor that knows one number, the median utilization of the peak on the rows not held out.
ErrorSummary constant_utilization_errors(const std::vector<PredictedPoint>& points, const PointTable& table,
                                         HoldOut by);

/// Rank correlation of predicted and measured throughput over the rows whose source holds `source`.
double rank_correlation(const std::vector<PredictedPoint>& points, const PointTable& table,
                        std::string_view source);

}  // namespace heddle::search
