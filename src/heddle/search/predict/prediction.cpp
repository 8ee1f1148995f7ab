#include "heddle/search/predict/prediction.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>

#include "heddle/base/hash.h"
#include "heddle/model/shapes/shape_presets.h"

namespace heddle::search {

namespace {

constexpr uint64_t kParts = 5;

// By a hash of the row's fields: a row lies in the same part wherever it stands in a file.
uint64_t part_of(const std::vector<std::string>& row) {
  uint64_t hash = kFnvStart;
  for (const std::string& field : row) hash = fnv1a(field + ",", hash);
  return (hash >> 20) % kParts;
}

std::string model_of(std::string_view name) {
  for (const char* cut : {" proxy", "_proxy", "-proxy"})
    if (const size_t at = name.find(cut); at != std::string_view::npos) name = name.substr(0, at);
  const model::Shape* preset = model::find_shape(name);
  return preset != nullptr ? preset->name : std::string(name);
}

bool usable(const PredictedPoint& p) {
  return p.point.reason.empty() && p.point.time_reason.empty() && p.estimate.reason.empty() &&
         p.measured_tokens_per_s > 0;
}

CalibrationSample sample_of(const PredictedPoint& p) {
  return {key_of(p.point), std::log(p.estimate.tokens_per_s_per_device / p.measured_tokens_per_s)};
}

// Calls use(train, test) with the indices of each split.
template <class Use>
void for_each_split(const std::vector<PredictedPoint>& points, const PointTable& table, HoldOut by, Use use) {
  std::map<std::string, std::vector<size_t>> tests;
  for (size_t i = 0; i < points.size(); ++i)
    tests[by == HoldOut::models ? points[i].model : std::to_string(part_of(table.rows[i]))].push_back(i);
  for (const auto& [name, test] : tests) {
    const std::set<size_t> held(test.begin(), test.end());
    std::vector<size_t> train;
    for (size_t i = 0; i < points.size(); ++i)
      if (!held.contains(i) && usable(points[i])) train.push_back(i);
    use(train, test);
  }
}

ErrorSummary summary(std::vector<double> errors) {
  ErrorSummary s;
  s.rows = errors.size();
  if (errors.empty()) return s;
  std::sort(errors.begin(), errors.end());
  const auto at = [&](double q) {
    const double x = q * static_cast<double>(errors.size() - 1);
    const size_t low = static_cast<size_t>(x), high = std::min(low + 1, errors.size() - 1);
    return errors[low] + (x - static_cast<double>(low)) * (errors[high] - errors[low]);
  };
  s.median = at(0.5);
  s.p90 = at(0.9);
  return s;
}

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

double peak_use(const PredictedPoint& p) {
  const Job& j = p.point.job;
  return model::training_flops_per_token(j.shape, j.sequence, j.with_mtp) / j.device.bf16_flops;
}

}  // namespace

std::vector<PredictedPoint> predict_points(const PointTable& table, const Calibration& calibration) {
  std::vector<PredictedPoint> points;
  points.reserve(table.rows.size());
  for (size_t i = 0; i < table.rows.size(); ++i) {
    PredictedPoint p;
    p.point = job_of_point(table, i);
    p.model = model_of(table.field(i, "model"));
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
    if (!p.point.time_reason.empty()) p.reason = p.point.time_reason + (p.reason.empty() ? "" : "; " + p.reason);
    p.has_memory = p.point.reason.empty() && p.estimate.reason.empty();
    if (p.has_memory && p.point.time_reason.empty())
      p.tokens_per_s = p.estimate.tokens_per_s_per_device / calibration.scale(key_of(p.point));
    points.push_back(std::move(p));
  }
  return points;
}

Calibration calibrate(const std::vector<PredictedPoint>& points) {
  std::vector<CalibrationSample> samples;
  for (const PredictedPoint& p : points)
    if (usable(p)) samples.push_back(sample_of(p));
  return Calibration::fit(samples);
}

void hold_out(std::vector<PredictedPoint>& points, const PointTable& table, HoldOut by) {
  for_each_split(points, table, by, [&](const std::vector<size_t>& train, const std::vector<size_t>& test) {
    std::vector<CalibrationSample> samples;
    for (const size_t i : train) samples.push_back(sample_of(points[i]));
    const Calibration calibration = Calibration::fit(samples);
    for (const size_t i : test) {
      PredictedPoint& p = points[i];
      if (p.tokens_per_s > 0)
        p.tokens_per_s = p.estimate.tokens_per_s_per_device / calibration.scale(key_of(p.point));
    }
  });
}

ErrorSummary time_errors(const std::vector<PredictedPoint>& points) {
  std::vector<double> errors;
  for (const PredictedPoint& p : points)
    if (p.tokens_per_s > 0 && p.measured_tokens_per_s > 0)
      errors.push_back(std::abs(p.tokens_per_s / p.measured_tokens_per_s - 1));
  return summary(std::move(errors));
}

ErrorSummary memory_errors(const std::vector<PredictedPoint>& points) {
  std::vector<double> errors;
  for (const PredictedPoint& p : points)
    if (p.has_memory && p.measured_peak_bytes > 0)
      errors.push_back(std::abs(p.estimate.peak_bytes / p.measured_peak_bytes - 1));
  return summary(std::move(errors));
}

ErrorSummary constant_utilization_errors(const std::vector<PredictedPoint>& points, const PointTable& table,
                                         HoldOut by) {
  std::vector<double> errors;
  for_each_split(points, table, by, [&](const std::vector<size_t>& train, const std::vector<size_t>& test) {
    std::vector<double> seen;
    for (const size_t i : train) seen.push_back(points[i].measured_tokens_per_s * peak_use(points[i]));
    const double utilization = summary(std::move(seen)).median;
    for (const size_t i : test) {
      if (!usable(points[i])) continue;
      errors.push_back(std::abs(utilization / peak_use(points[i]) / points[i].measured_tokens_per_s - 1));
    }
  });
  return summary(std::move(errors));
}

double rank_correlation(const std::vector<PredictedPoint>& points, const PointTable& table,
                        std::string_view source) {
  std::vector<double> predicted, measured;
  for (size_t i = 0; i < points.size(); ++i) {
    if (table.field(i, "source").find(source) == std::string_view::npos) continue;
    if (points[i].tokens_per_s <= 0 || points[i].measured_tokens_per_s <= 0) continue;
    predicted.push_back(points[i].tokens_per_s);
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

}  // namespace heddle::search
