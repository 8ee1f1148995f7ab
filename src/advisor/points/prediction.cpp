#include "advisor/points/prediction.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "advisor/points/reported_memory.h"
#include "heddle/base/statistics.h"

namespace heddle::advisor {

namespace {

// Ranks with ties at their mean.
std::vector<double> ranks_of(const std::vector<double>& values) {
  std::vector<size_t> order(values.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return values[a] < values[b]; });
  std::vector<double> ranks(values.size());
  for (size_t i = 0; i < order.size();) {
    size_t end = i;
    while (end < order.size() && values[order[end]] == values[order[i]]) ++end;
    for (size_t k = i; k < end; ++k) ranks[order[k]] = static_cast<double>(i + end - 1) / 2;
    i = end;
  }
  return ranks;
}

Prediction corrected(double estimated, const Correction& c) {
  return {estimated / c.ratio, estimated / c.high, estimated / c.low};
}

// A pipeline whose batch nobody prints may have no bubble at all, or twice as much.
void widen_by_bubble(Prediction& f, const PointJob& point, const Estimate& e) {
  if (!point.batch_assumed) return;
  const double bubble = e.time.bubble / e.step_s;
  f.high = std::max(f.high, f.value / (1 - bubble));
  f.low = std::min(f.low, f.value / (1 + bubble));
}

// Whatever a correction says, the run fitted.
Prediction fitted_in(const Prediction& f, const PointJob& point) {
  const double most = most_reported(point.job);
  return {std::min(f.value, most), std::min(f.low, most), std::min(f.high, most)};
}

}  // namespace

Calibrations Calibrations::built_in() { return {Calibration::built_in(), Calibration::built_in_memory()}; }

Prediction predict_time(const PointJob& point, const Estimate& e, const Calibration& calibration) {
  Prediction f = corrected(e.tokens_per_s_per_device, calibration.correction(time_traits(point, e)));
  widen_by_bubble(f, point, e);
  return f;
}

Prediction predict_memory(const PointJob& point, const Estimate& e, const Calibration& calibration) {
  return fitted_in(corrected(e.peak_bytes, calibration.correction(memory_traits(point, e))), point);
}

std::vector<PredictedPoint> predict_points(const PointTable& table, const Calibrations& calibrations) {
  std::vector<PredictedPoint> points;
  points.reserve(table.rows.size());
  for (size_t i = 0; i < table.rows.size(); ++i) {
    PredictedPoint p;
    p.point = job_of_point(table, i);
    p.complete = true;
    for (const char* column : {"hidden", "layers", "seq", "gpus", "tp", "pp", "mbs", "gbs"})
      if (table.field(i, column).empty()) p.complete = false;
    if (p.point.reason.empty()) p.estimate = estimate(p.point.job);
    p.reason = !p.point.reason.empty()      ? p.point.reason
               : !p.estimate.reason.empty() ? p.estimate.reason
               : p.point.assumed.empty()    ? ""
                                            : "assumed: " + p.point.assumed;
    p.measured_tokens_per_s = measured_tokens_per_s(table, i, p.point);
    p.measured_peak_bytes = measured_peak_bytes(table, i);
    // A peak beyond the device's memory is an account of what would be needed, or in another unit.
    if (p.point.reason.empty() && p.measured_peak_bytes > 1.01 * most_reported(p.point.job)) {
      p.reason += fmt::format("{}a peak of {:.1f} GiB on a device with {:.1f} is not measured",
                              p.reason.empty() ? "" : "; ", p.measured_peak_bytes / 1024 / 1024 / 1024,
                              most_reported(p.point.job) / 1024 / 1024 / 1024);
      p.measured_peak_bytes = 0;
    }
    if (p.point.reason.empty() && p.estimate.reason.empty()) {
      count_as_reported(p.point, p.estimate);
      p.tokens_per_s = predict_time(p.point, p.estimate, calibrations.time);
      p.peak_bytes = predict_memory(p.point, p.estimate, calibrations.memory);
    }
    points.push_back(std::move(p));
  }
  return points;
}

Calibrations calibrate(const std::vector<PredictedPoint>& points) {
  std::vector<CalibrationSample> time, memory;
  for (const PredictedPoint& p : points) {
    if (p.has_time())
      time.push_back({time_traits(p.point, p.estimate),
                      std::log(p.estimate.tokens_per_s_per_device / p.measured_tokens_per_s)});
    if (p.has_memory())
      memory.push_back(
          {memory_traits(p.point, p.estimate), std::log(p.estimate.peak_bytes / p.measured_peak_bytes)});
  }
  return {Calibration::fit(time, Figure::time), Calibration::fit(memory, Figure::memory)};
}

void hold_out(std::vector<PredictedPoint>& points, const Calibrations& fitted, HoldOut by) {
  // Rows that the calibration did not keep are not seen by it as a whole.
  const auto each = [&](const Calibration& calibration, const auto& measured, const auto& take,
                        const auto& predict) {
    std::vector<PredictedPoint*> rows;
    for (PredictedPoint& p : points)
      if (measured(p)) rows.push_back(&p);
    const std::vector<Correction> held = calibration.held_out(by);
    const std::vector<size_t> kept = Calibration::kept_rows(rows.size());
    size_t k = 0;
    for (size_t i = 0; i < rows.size(); ++i) {
      if (k < kept.size() && kept[k] == i)
        take(*rows[i], held[k++]);
      else
        predict(*rows[i]);
    }
  };
  each(
      fitted.time, [](const PredictedPoint& p) { return p.has_time(); },
      [](PredictedPoint& p, const Correction& c) {
        p.tokens_per_s = corrected(p.estimate.tokens_per_s_per_device, c);
        widen_by_bubble(p.tokens_per_s, p.point, p.estimate);
      },
      [&](PredictedPoint& p) { p.tokens_per_s = predict_time(p.point, p.estimate, fitted.time); });
  each(
      fitted.memory, [](const PredictedPoint& p) { return p.has_memory(); },
      [](PredictedPoint& p, const Correction& c) {
        p.peak_bytes = fitted_in(corrected(p.estimate.peak_bytes, c), p.point);
      },
      [&](PredictedPoint& p) { p.peak_bytes = predict_memory(p.point, p.estimate, fitted.memory); });
}

ErrorSummary errors_of(const std::vector<std::pair<Prediction, double>>& pairs) {
  ErrorSummary s;
  s.rows = pairs.size();
  if (pairs.empty()) return s;
  std::vector<double> errors;
  for (const auto& [predicted, measured] : pairs) {
    errors.push_back(std::abs(predicted.value / measured - 1));
    s.covered += measured >= predicted.low && measured <= predicted.high;
  }
  s.covered /= static_cast<double>(s.rows);
  s.median = quantile(errors, 0.5);
  s.p90 = quantile(errors, 0.9);
  return s;
}

ErrorSummary time_errors(const std::vector<PredictedPoint>& points) {
  std::vector<std::pair<Prediction, double>> pairs;
  for (const PredictedPoint& p : points)
    if (p.has_time()) pairs.emplace_back(p.tokens_per_s, p.measured_tokens_per_s);
  return errors_of(pairs);
}

ErrorSummary memory_errors(const std::vector<PredictedPoint>& points) {
  std::vector<std::pair<Prediction, double>> pairs;
  for (const PredictedPoint& p : points)
    if (p.has_memory()) pairs.emplace_back(p.peak_bytes, p.measured_peak_bytes);
  return errors_of(pairs);
}

double rank_correlation(const std::vector<PredictedPoint>& points, const PointTable& table,
                        std::string_view source) {
  std::vector<double> predicted, measured;
  for (size_t i = 0; i < points.size(); ++i) {
    if (table.field(i, "source").find(source) == std::string_view::npos || !points[i].has_time()) continue;
    predicted.push_back(points[i].tokens_per_s.value);
    measured.push_back(points[i].measured_tokens_per_s);
  }
  if (predicted.size() < 2) return 0;
  const std::vector<double> a = ranks_of(predicted), b = ranks_of(measured);
  const double mean = static_cast<double>(a.size() - 1) / 2;
  double ab = 0, aa = 0, bb = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    ab += (a[i] - mean) * (b[i] - mean);
    aa += (a[i] - mean) * (a[i] - mean);
    bb += (b[i] - mean) * (b[i] - mean);
  }
  return aa > 0 && bb > 0 ? ab / std::sqrt(aa * bb) : 0;
}

}  // namespace heddle::advisor
