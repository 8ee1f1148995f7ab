// Predictions for a table of points, and their errors. Each measured row is predicted by a calibration that has not
// seen it, nor any row of its model, its source or its device.
#pragma once

#include <string>
#include <vector>

#include "advisor/points/calibration.h"
#include "advisor/points/points.h"

namespace heddle::advisor {

/// A figure with the ends of the interval that holds 80 % of unseen rows; 0: no prediction.
struct Prediction {
  double value = 0, low = 0, high = 0;
};

struct PredictedPoint {
  PointJob point;
  Estimate estimate;                                          // uncalibrated
  double measured_tokens_per_s = 0, measured_peak_bytes = 0;  // 0: not measured
  Prediction tokens_per_s, peak_bytes;                        // calibrated
  std::string reason;                                         // why there is none, or what was assumed
  bool complete = false;                                      // the row has dimensions, layout and batch

  bool is_predicted() const { return tokens_per_s.value > 0; }
  /// Measured and predicted: calibration may learn from its throughput, its memory.
  bool has_time() const { return is_predicted() && measured_tokens_per_s > 0; }
  bool has_memory() const { return is_predicted() && measured_peak_bytes > 0; }
};

/// Calibrations of throughput and of memory.
struct Calibrations {
  Calibration time, memory;
  static Calibrations built_in();
};

/// A job's prediction, as `heddle predict` gives it for a row.
Prediction predict_time(const PointJob& point, const Estimate& estimate, const Calibration& calibration);
Prediction predict_memory(const PointJob& point, const Estimate& estimate, const Calibration& calibration);

/// One prediction a row.
std::vector<PredictedPoint> predict_points(const PointTable& table, const Calibrations& calibrations);

/// Calibrations of all measured rows.
Calibrations calibrate(const std::vector<PredictedPoint>& points);

/// Predicts the measured rows anew, without themselves or their group. `fitted`: what calibrate(points) gave.
void hold_out(std::vector<PredictedPoint>& points, const Calibrations& fitted, HoldOut by);

struct ErrorSummary {
  size_t rows = 0;
  double median = 0, p90 = 0;  // of |predicted ÷ measured - 1|
  double covered = 0;          // part of the rows within their interval
};
ErrorSummary time_errors(const std::vector<PredictedPoint>& points);
ErrorSummary memory_errors(const std::vector<PredictedPoint>& points);
/// Summarizes pairs of predicted and measured values.
ErrorSummary errors_of(const std::vector<std::pair<Prediction, double>>& pairs);

/// Rank correlation of predicted and measured throughput over the rows whose source holds `source`.
double rank_correlation(const std::vector<PredictedPoint>& points, const PointTable& table,
                        std::string_view source);

}  // namespace heddle::advisor
