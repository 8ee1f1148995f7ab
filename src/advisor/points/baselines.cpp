#include "advisor/points/baselines.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <string>

#include "heddle/base/statistics.h"

namespace heddle::advisor {

namespace {

struct KnownRows {
  size_t index = 0;
  Traits traits;
  double peak_use = 0;  // seconds of the device's peak that a token takes
  double utilization = 0;
};

double median_of(const std::vector<double>& values) { return values.empty() ? 0 : quantile(values, 0.5); }

double by_utilization(const std::vector<const KnownRows*>& seen, const KnownRows& k) {
  std::vector<double> own, device, all;
  for (const KnownRows* s : seen) {
    all.push_back(s->utilization);
    if (s->traits.device != k.traits.device) continue;
    device.push_back(s->utilization);
    if (s->traits.precision == k.traits.precision) own.push_back(s->utilization);
  }
  return median_of(!own.empty() ? own : !device.empty() ? device : all);
}

double by_nearest(const std::vector<const KnownRows*>& seen, const KnownRows& k) {
  double least = std::numeric_limits<double>::infinity(), utilization = 0;
  for (const KnownRows* s : seen) {
    const Traits &a = s->traits, &b = k.traits;
    double far = (a.device != b.device ? 4 : 0) + (a.precision != b.precision ? 2 : 0) +
                 (a.framework != b.framework ? 2 : 0) + (a.model != b.model ? 2 : 0);
    for (size_t i = 0; i < a.layout.size(); ++i) far += 0.5 * std::abs(a.layout[i] - b.layout[i]);
    if (far < least) least = far, utilization = s->utilization;
  }
  return utilization;
}

std::string cell_of(const Traits& t) { return t.device + std::string(cost::name_of(t.precision)); }

// Solves the normal equations by Gaussian elimination; they are positive definite by the penalty.
std::vector<double> ridge_weights(std::vector<std::vector<double>> a) {
  const size_t n = a.size();
  for (size_t i = 0; i < n; ++i)
    for (size_t r = i + 1; r < n; ++r) {
      const double by = a[r][i] / a[i][i];
      for (size_t c = i; c <= n; ++c) a[r][c] -= by * a[i][c];
    }
  std::vector<double> x(n);
  for (size_t i = n; i-- > 0;) {
    x[i] = a[i][n];
    for (size_t c = i + 1; c < n; ++c) x[i] -= a[i][c] * x[c];
    x[i] /= a[i][i];
  }
  return x;
}

class Ridge {
 public:
  explicit Ridge(const std::vector<const KnownRows*>& seen) {
    for (const KnownRows* s : seen) cells_.emplace(cell_of(s->traits), cells_.size());
    const size_t n = size();
    std::vector<std::vector<double>> a(n, std::vector<double>(n + 1, 0.0));
    for (const KnownRows* s : seen) {
      const std::vector<double> x = features(s->traits);
      for (size_t i = 0; i < n; ++i) {
        for (size_t k = 0; k < n; ++k) a[i][k] += x[i] * x[k];
        a[i][n] += x[i] * std::log(s->utilization);
      }
    }
    constexpr double kPenalty = 1;
    for (size_t i = 0; i < n; ++i) a[i][i] += kPenalty;
    weights_ = ridge_weights(std::move(a));
  }
  double utilization(const Traits& t) const {
    const std::vector<double> x = features(t);
    double sum = 0;
    for (size_t i = 0; i < x.size(); ++i) sum += x[i] * weights_[i];
    return std::exp(sum);
  }

 private:
  size_t size() const { return std::tuple_size_v<decltype(Traits::layout)> + 3 + cells_.size(); }
  std::vector<double> features(const Traits& t) const {
    std::vector<double> x(t.layout.begin(), t.layout.end());
    x.push_back(t.experts ? 1 : 0);
    x.push_back(t.date > 0 ? t.date - 25 : 0);
    x.push_back(1);
    x.resize(size(), 0);
    const auto cell = cells_.find(cell_of(t));
    if (cell != cells_.end()) x[t.layout.size() + 3 + cell->second] = 1;
    return x;
  }
  std::map<std::string, size_t> cells_;
  std::vector<double> weights_;
};

std::string group_of(const KnownRows& k, HoldOut by) {
  switch (by) {
    case HoldOut::rows: return std::to_string(k.index % 10);  // ten parts: each row alone costs a fit
    case HoldOut::models: return k.traits.model;
    case HoldOut::sources: return k.traits.document;
    case HoldOut::devices: return k.traits.device;
  }
  return "";
}

}  // namespace

std::string_view name_of(Baseline baseline) {
  switch (baseline) {
    case Baseline::utilization: return "median utilization";
    case Baseline::nearest: return "nearest row";
    case Baseline::ridge: return "ridge";
  }
  return "";
}

std::vector<double> predict_held_out(const std::vector<PredictedPoint>& points, Baseline baseline, HoldOut by) {
  std::vector<KnownRows> known;
  for (size_t i = 0; i < points.size(); ++i) {
    const PredictedPoint& p = points[i];
    if (!p.has_time()) continue;
    KnownRows k{i, time_traits(p.point, p.estimate)};
    const Job& j = p.point.job;
    k.peak_use = model::training_flops_per_token(j.shape, j.sequence, j.with_mtp) / j.device.flops(j.precision);
    k.utilization = p.measured_tokens_per_s * k.peak_use;
    known.push_back(std::move(k));
  }
  std::set<std::string> groups;
  for (const KnownRows& k : known) groups.insert(group_of(k, by));
  std::vector<double> tokens(points.size(), 0.0);
  for (const std::string& group : groups) {
    std::vector<const KnownRows*> seen;
    for (const KnownRows& k : known)
      if (group_of(k, by) != group) seen.push_back(&k);
    if (seen.empty()) continue;
    const Ridge ridge(baseline == Baseline::ridge ? seen : std::vector<const KnownRows*>{});
    for (const KnownRows& k : known) {
      if (group_of(k, by) != group) continue;
      const double utilization = baseline == Baseline::utilization ? by_utilization(seen, k)
                                 : baseline == Baseline::nearest   ? by_nearest(seen, k)
                                                                   : ridge.utilization(k.traits);
      tokens[k.index] = utilization / k.peak_use;
    }
  }
  return tokens;
}

}  // namespace heddle::advisor
