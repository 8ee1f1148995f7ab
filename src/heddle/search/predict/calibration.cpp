#include "heddle/search/predict/calibration.h"

#include <algorithm>
#include <cmath>

#include "heddle/base/error.h"
#include "heddle/base/statistics.h"
#include "heddle/search/predict/built_in_calibration.h"

namespace heddle::search {

namespace {

constexpr double kPrior = 0.7;          // rows that the neighbours are worth
constexpr double kReach = 0.12;         // distance at which a neighbour's weight has fallen to 1/e
constexpr double kMostRows = 6;         // beyond which a group's weight as a neighbour doesn't grow
constexpr double kLogLimit = 2.302585;  // a scalar beyond 10 or below 1/10 is no calibration

bool same(const CalibrationKey& a, const CalibrationKey& b) {
  return a.device == b.device && a.stack == b.stack && a.release == b.release && a.precision == b.precision;
}

bool narrow(cost::Precision p) { return p != cost::Precision::bf16 && p != cost::Precision::fp16; }

double distance(const CalibrationKey& a, const CalibrationKey& b) {
  double far = a.date > 0 && b.date > 0 ? std::min(0.5, std::abs(a.date - b.date) * 0.2) : 0.25;
  if (a.precision != b.precision) far += narrow(a.precision) == narrow(b.precision) ? 0.15 : 0.3;
  if (a.stack != b.stack) far += 0.4;
  if (a.device != b.device) far += a.family == b.family ? 0.15 : 0.8;
  return far;
}

}  // namespace

CalibrationKey key_of(const PointJob& p) {
  return {p.job.device.name, p.job.device.family, p.release.stack, p.release.name, p.release.date, p.job.precision};
}

double Calibration::neighbours(const CalibrationKey& key, const Group* skip) const {
  double sum = 0, weights = 0;
  for (const Group& g : groups_) {
    if (&g == skip) continue;
    const double weight = std::min(g.rows, kMostRows) * std::exp(-distance(key, g.key) / kReach);
    sum += weight * g.log_scale;
    weights += weight;
  }
  return weights > 0 ? sum / weights : 0;
}

Calibration Calibration::fit(const std::vector<CalibrationSample>& samples) {
  Calibration c;
  for (const CalibrationSample& s : samples) {
    auto it = std::find_if(c.groups_.begin(), c.groups_.end(), [&](const Group& g) { return same(g.key, s.key); });
    if (it == c.groups_.end()) it = c.groups_.insert(it, Group{s.key, 0, 0});
    it->log_scale += std::clamp(s.log_ratio, -kLogLimit, kLogLimit);
    it->rows += 1;
  }
  for (Group& g : c.groups_) g.log_scale /= g.rows;
  for (const CalibrationSample& s : samples) {
    const auto it =
        std::find_if(c.groups_.begin(), c.groups_.end(), [&](const Group& g) { return same(g.key, s.key); });
    const double off = std::clamp(s.log_ratio, -kLogLimit, kLogLimit) - it->log_scale;
    it->spread += off * off;
  }
  for (Group& g : c.groups_) g.spread = g.rows > 1 ? std::sqrt(g.spread / (g.rows - 1)) : 0;
  std::vector<double> drawn;
  for (const Group& g : c.groups_) {
    const double prior = c.groups_.size() > 1 ? c.neighbours(g.key, &g) : g.log_scale;
    drawn.push_back((g.rows * g.log_scale + kPrior * prior) / (g.rows + kPrior));
  }
  for (size_t i = 0; i < drawn.size(); ++i) c.groups_[i].log_scale = drawn[i];
  return c;
}

double Calibration::scale(const CalibrationKey& key) const {
  for (const Group& g : groups_)
    if (same(g.key, key)) return std::exp(g.log_scale);
  return std::exp(neighbours(key, nullptr));
}

namespace {

// Steps from one key to another: another release, another precision or stack, another device, another generation.
int steps_between(const CalibrationKey& a, const CalibrationKey& b) {
  if (a.family != b.family) return 4;
  if (a.device != b.device) return 3;
  return a.precision != b.precision || a.stack != b.stack ? 2 : 1;
}

}  // namespace

bool Calibration::from_afar(const CalibrationKey& key, int step, const Group* skip, double& mean) const {
  double sum = 0, weights = 0;
  for (const Group& g : groups_) {
    if (&g == skip || steps_between(key, g.key) < step) continue;
    const double weight = std::min(g.rows, kMostRows) * std::exp(-distance(key, g.key) / kReach);
    sum += weight * g.log_scale;
    weights += weight;
  }
  mean = weights > 0 ? sum / weights : 0;
  return weights > 0;
}

ScaleInterval Calibration::interval(const cost::Accelerator& device, cost::Precision precision) const {
  CalibrationKey key{device.name, device.family, "megatron", "", 0, precision};
  // The newest release that was measured on the device in this precision, else on the device, else anywhere.
  for (int step = 1; step <= 4 && key.date == 0; ++step)
    for (const Group& g : groups_)
      if (g.key.stack == key.stack && steps_between(key, g.key) <= step && g.key.date > key.date)
        key.date = g.key.date, key.release = g.key.release;
  ScaleInterval in;
  in.scale = scale(key);
  int nearest = 4;
  double rows = 0, squares = 0;
  const Group* own = nullptr;
  for (const Group& g : groups_) {
    nearest = std::min(nearest, steps_between(key, g.key));
    if (same(g.key, key)) own = &g;
    if (g.rows > 1) rows += g.rows - 1, squares += (g.rows - 1) * g.spread * g.spread;
  }
  double within = rows > 0 ? std::sqrt(squares / rows) : 0;
  if (own != nullptr) within *= std::sqrt(1 + 1 / std::max(1.0, own->rows));  // its own mean is not sure either
  std::vector<double> residuals;
  if (own == nullptr)
    for (const Group& g : groups_)
      if (double mean = 0; from_afar(g.key, nearest, &g, mean)) residuals.push_back(g.log_scale - mean);
  constexpr double kNinety = 1.645;  // standard deviations that 5 % lie beyond
  const double low = std::hypot(std::min(0.0, quantile(residuals, 0.05)), kNinety * within),
               high = std::hypot(std::max(0.0, quantile(residuals, 0.95)), kNinety * within);
  in.low = in.scale * std::exp(-low);
  in.high = in.scale * std::exp(high);
  static const char* const words[] = {"", "other releases on this device in this precision",
                                      "other precisions on this device", "other devices of this generation",
                                      "other generations of devices"};
  in.from = own != nullptr ? fmt::format("{:.0f} measured rows of {} on this device", own->rows, own->key.release)
            : groups_.empty() ? "nothing measured"
                              : words[nearest];
  return in;
}

std::string Calibration::text() const {
  std::string out = "device,stack,release,date,precision,scale,rows,spread\n";
  for (const Group& g : groups_)
    out += fmt::format("{},{},{},{:.4f},{},{:.4f},{:.0f},{:.4f}\n", g.key.device, g.key.stack, g.key.release,
                       g.key.date, cost::name_of(g.key.precision), std::exp(g.log_scale), g.rows, g.spread);
  return out;
}

Calibration Calibration::read(std::string_view text, std::string_view name) {
  const PointTable table =
      read_points(text, name, {"device", "stack", "release", "date", "precision", "scale", "rows"});
  Calibration c;
  for (size_t i = 0; i < table.rows.size(); ++i) {
    Group g;
    const std::string_view device = table.field(i, "device"), precision = table.field(i, "precision");
    g.key.device = device;
    const cost::Accelerator* known = cost::accelerator_named(device);
    if (known == nullptr)
      config_error("{}:{}: device '{}' is not known", name, table.lines[i], device.substr(0, 60));
    g.key.family = known->family;
    g.key.stack = table.field(i, "stack");
    g.key.release = table.field(i, "release");
    const std::optional<cost::Precision> p = cost::precision_named(precision);
    if (!p) config_error("{}:{}: precision '{}' is not known", name, table.lines[i], precision.substr(0, 60));
    g.key.precision = *p;
    bool bad = false;
    const auto date = number(table.field(i, "date"), bad), scale = number(table.field(i, "scale"), bad),
               rows = number(table.field(i, "rows"), bad), spread = number(table.field(i, "spread"), bad);
    if (bad || !date || !scale || !rows || *scale < 0.05 || *scale > 20 || *rows < 0 || spread.value_or(0) < 0)
      config_error("{}:{}: date, scale, rows and spread, accepted: numbers, scale between 0.05 and 20", name,
                   table.lines[i]);
    g.spread = spread.value_or(0);
    g.key.date = *date;
    g.log_scale = std::log(*scale);
    g.rows = *rows;
    c.groups_.push_back(std::move(g));
  }
  return c;
}

const Calibration& Calibration::built_in() {
  static const Calibration calibration = read(kBuiltInCalibration, "the built-in calibration");
  return calibration;
}

}  // namespace heddle::search
