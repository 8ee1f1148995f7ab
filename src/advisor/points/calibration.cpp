#include "advisor/points/calibration.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "advisor/points/built_in_calibration.h"
#include "advisor/points/points.h"
#include "heddle/base/error.h"
#include "heddle/base/statistics.h"

namespace heddle::advisor {

namespace {

constexpr double kLogLimit = 3;  // a ratio beyond 20 or below 1/20 is no calibration
constexpr double kWithin =
    0.83;                       // part of the scores between an interval's ends, so that it holds 80 % of new rows
constexpr size_t kAlike = 150;  // scores that an interval leans on

constexpr int kOtherDevice = 2;  // how near rows are: of no row on the device

using cost::Precision;

// Columns of numbers, in order, behind those of words.
const std::vector<std::string>& number_columns() {
  static const std::vector<std::string> all = {"date",        "experts",
                                               "sequence",    "tp",
                                               "pp",          "ep",
                                               "cp",          "dp",
                                               "microbatch",  "batches",
                                               "billions",    "chunks",
                                               "recomputed",  "frozen",
                                               "products",    "attention",
                                               "traffic",     "launches",
                                               "tensor",      "exchange",
                                               "context",     "pipeline",
                                               "data",        "bubble",
                                               "optimizer",   "log_ratio",
                                               "noise",       "row_deviation",
                                               "row_score",   "model_deviation",
                                               "model_score", "source_deviation",
                                               "source_score"};
  return all;
}
const std::vector<std::string>& word_columns() {
  static const std::vector<std::string> all = {"device", "precision", "framework", "document", "model", "words"};
  return all;
}

// Measured rows say how a step divides on networks that there are. On any other, a slower network would look like
// another division of the same step, and its correction could exceed what the network costs.
bool has_known_network(const cost::Accelerator& device) {
  const cost::Accelerator* known = cost::accelerator_named(device.name);
  return known != nullptr && known->inner == device.inner && known->outer == device.outer &&
         known->farther == device.farther;
}

// Corrections of other devices are also of their products' rates. On a device that nobody has measured no
// correction takes products and attention below their time at the device's own sustained rates.
double least_scale(const Estimate& e) { return (e.time.products + e.time.attention) / e.step_s; }

}  // namespace

std::string_view name_of(HoldOut by) {
  switch (by) {
    case HoldOut::rows: return "rows";
    case HoldOut::models: return "models";
    case HoldOut::sources: return "sources";
    case HoldOut::devices: return "devices";
  }
  return "";
}

void Calibration::solve() {
  const size_t n = rows_.size();
  std::vector<double> covariances(n * n), noise(n), values(n);
  for (size_t i = 0; i < n; ++i) {
    values[i] = rows_[i].log_ratio;
    noise[i] = rows_[i].noise;
    for (size_t j = 0; j <= i; ++j)
      covariances[i * n + j] = covariances[j * n + i] = covariance(rows_[i].traits, rows_[j].traits, figure_);
  }
  if (n > 0 && noise[0] == 0) {
    noise = GaussianProcess::noise_of(covariances, new_noise(), values);
    for (size_t i = 0; i < n; ++i) rows_[i].noise = noise[i];
  }
  process_ = GaussianProcess(covariances, std::move(noise), values);
}

std::vector<double> Calibration::new_noise() const {
  std::vector<double> noise;
  for (const Row& row : rows_) noise.push_back(noise_variance(row.traits, figure_));
  return noise;
}

std::vector<size_t> Calibration::groups(HoldOut by) const {
  std::vector<size_t> group(rows_.size());
  std::map<std::string, size_t> known;
  for (size_t i = 0; i < rows_.size(); ++i) {
    const Traits& t = rows_[i].traits;
    const std::string& name = by == HoldOut::models ? t.model : by == HoldOut::sources ? t.document : t.device;
    group[i] = by == HoldOut::rows ? i : known.emplace(name, known.size()).first->second;
  }
  return group;
}

std::vector<size_t> Calibration::kept_rows(size_t samples) {
  std::vector<size_t> kept;
  const double every = std::max(1.0, static_cast<double>(samples) / kMostRows);
  for (size_t i = 0; i < std::min(samples, kMostRows); ++i)
    kept.push_back(std::min(samples - 1, static_cast<size_t>(static_cast<double>(i) * every)));
  return kept;
}

Calibration Calibration::fit(const std::vector<CalibrationSample>& samples, Figure figure) {
  Calibration c;
  c.figure_ = figure;
  for (const size_t i : kept_rows(samples.size()))
    c.rows_.push_back({samples[i].traits, std::clamp(samples[i].log_ratio, -kLogLimit, kLogLimit), 0, {}});
  c.solve();
  size_t at = 0;
  for (const HoldOut by : {HoldOut::rows, HoldOut::models, HoldOut::sources}) {
    const std::vector<Expected> expected = c.process_.held_out(c.groups(by), c.new_noise());
    for (size_t i = 0; i < c.rows_.size(); ++i)
      c.rows_[i].scores[at] = {expected[i].deviation,
                               (c.rows_[i].log_ratio - expected[i].mean) / expected[i].deviation};
    ++at;
  }
  return c;
}

Correction Calibration::with_interval(const Expected& expected, const Traits& traits) const {
  // The scores of rows that were about as uncertain. Those of another maker or software, or with experts where
  // this has none, count as further away.
  constexpr double kOtherMaker = 1.5, kOtherBlocks = 0.7, kOtherSoftware = 0.5;
  std::vector<std::pair<double, double>> near;
  for (const Row& row : rows_)
    for (const Score& s : row.scores) {
      const double away = std::abs(std::log(s.deviation / expected.deviation));
      near.emplace_back(away + (maker_of(row.traits.family) == maker_of(traits.family) ? 0 : kOtherMaker) +
                            (row.traits.experts == traits.experts ? 0 : kOtherBlocks) +
                            (row.traits.framework == traits.framework ? 0 : kOtherSoftware),
                        s.off);
    }
  const size_t count = std::min(near.size(), kAlike);
  std::partial_sort(near.begin(), near.begin() + static_cast<std::ptrdiff_t>(count), near.end());
  std::vector<double> offs;
  for (size_t i = 0; i < count; ++i) offs.push_back(near[i].second);
  // With few rows the normal distribution's ends stand in.
  constexpr double kNormal = 1.2816;
  for (size_t i = offs.size(); i < 20; ++i) offs.push_back(i % 2 == 0 ? kNormal : -kNormal);
  const double low = std::min(0.0, quantile(offs, (1 - kWithin) / 2)),
               high = std::max(0.0, quantile(offs, (1 + kWithin) / 2));
  return {std::exp(expected.mean), std::exp(expected.mean + low * expected.deviation),
          std::exp(expected.mean + high * expected.deviation)};
}

Correction Calibration::correction(const Traits& traits) const {
  if (rows_.empty()) return {};
  std::vector<double> covariances;
  for (const Row& row : rows_) covariances.push_back(covariance(row.traits, traits, figure_));
  return with_interval(
      process_.at(covariances, covariance(traits, traits, figure_), noise_variance(traits, figure_)), traits);
}

std::vector<Correction> Calibration::held_out(HoldOut by) const {
  const std::vector<Expected> expected = process_.held_out(groups(by), new_noise());
  std::vector<Correction> all;
  for (size_t i = 0; i < rows_.size(); ++i) all.push_back(with_interval(expected[i], rows_[i].traits));
  return all;
}

Traits Calibration::usual_traits(const cost::Accelerator& device, Precision precision, int& nearest,
                                 size_t& count) const {
  // The means of the rows measured on the device in this precision, else on the device, on its generation,
  // anywhere; of the newest software there.
  const auto step_to = [&](const Traits& t) {
    if (t.device == device.name) return t.precision == precision ? 0 : 1;
    return t.family == device.family ? 2 : 3;
  };
  nearest = 3;
  for (const Row& row : rows_) nearest = std::min(nearest, step_to(row.traits));
  Traits usual;
  count = 0;
  for (const Row& row : rows_) {
    const Traits& t = row.traits;
    if (step_to(t) != nearest) continue;
    if (t.date >= usual.date) usual.date = t.date, usual.framework = t.framework;
    for (size_t i = 0; i < t.layout.size(); ++i) usual.layout[i] += t.layout[i];
    for (size_t i = 0; i < t.shares.size(); ++i) usual.shares[i] += t.shares[i];
    ++count;
  }
  for (double& n : usual.layout) n /= static_cast<double>(count);
  for (double& n : usual.shares) n /= static_cast<double>(count);
  usual.device = device.name;
  usual.family = device.family;
  usual.precision = precision;
  return usual;
}

const Calibration::DeviceErrors& Calibration::device_errors() const {
  std::call_once(device_errors_->once, [&] {
    const std::vector<Expected> expected = process_.held_out(groups(HoldOut::devices), new_noise());
    std::vector<double> off;
    for (size_t i = 0; i < rows_.size(); ++i) off.push_back(rows_[i].log_ratio - expected[i].mean);
    device_errors_->low = std::min(0.0, quantile(off, (1 - kWithin) / 2));
    device_errors_->high = std::max(0.0, quantile(off, (1 + kWithin) / 2));
  });
  return *device_errors_;
}

search::ScaleInterval Calibration::scaled(const Traits& traits, int nearest, size_t count) const {
  Correction c = correction(traits);
  static const char* const words[] = {"in this precision on this device", "in other precisions on this device",
                                      "on other devices of this generation", "on other generations of devices"};
  if (nearest >= kOtherDevice) {
    const DeviceErrors& errors = device_errors();
    c.low = std::min(c.low, c.ratio * std::exp(errors.low));
    c.high = std::max(c.high, c.ratio * std::exp(errors.high));
  }
  return {c.ratio, c.low, c.high, fmt::format("{} measured rows {}", count, words[nearest])};
}

search::ScaleInterval Calibration::interval(const cost::Accelerator& device, Precision precision) const {
  if (rows_.empty()) return {1, 1, 1, "nothing measured"};
  int nearest = 0;
  size_t count = 0;
  const Traits usual = usual_traits(device, precision, nearest, count);
  return scaled(usual, nearest, count);
}

search::ScaleInterval Calibration::interval(const Job& job, const Estimate& e) const {
  if (rows_.empty()) return {1, 1, 1, "nothing measured"};
  if (!has_known_network(job.device)) return interval(job.device, job.precision);
  int nearest = 0;
  size_t count = 0;
  const Traits usual = usual_traits(job.device, job.precision, nearest, count);
  PointJob point;
  point.job = job;
  point.release.framework = usual.framework;
  point.release.date = usual.date;
  search::ScaleInterval scale = scaled(time_traits(point, e), nearest, count);
  if (nearest >= kOtherDevice) {
    const double least = least_scale(e);
    scale.scale = std::max(scale.scale, least);
    scale.low = std::max(scale.low, least);
    scale.high = std::max(scale.high, least);
  }
  return scale;
}

std::string Calibration::text() const {
  std::string out = fmt::format("{},{}\n", fmt::join(word_columns(), ","), fmt::join(number_columns(), ","));
  for (const Row& row : rows_) {
    const Traits& t = row.traits;
    const std::string_view words[] = {t.device, cost::name_of(t.precision), t.framework, t.document, t.model,
                                      t.words};
    for (const std::string_view word : words) out += csv_field(word) + ",";
    out += fmt::format("{:.3f},{}", t.date, t.experts ? 1 : 0);
    for (const double n : t.layout) out += fmt::format(",{:.3g}", n);
    for (const double n : t.shares) out += fmt::format(",{:.2g}", n);
    out += fmt::format(",{:.4g},{:.3g}", row.log_ratio, row.noise);
    for (const Score& s : row.scores) out += fmt::format(",{:.3g},{:.3g}", s.deviation, s.off);
    out += "\n";
  }
  return out;
}

Calibration Calibration::read(std::string_view text, std::string_view name, Figure figure) {
  std::vector<std::string> needed = word_columns();
  needed.insert(needed.end(), number_columns().begin(), number_columns().end());
  const PointTable table = read_points(text, name, needed);
  if (table.rows.size() > kMostRows)
    config_error("{}: {} rows, accepted: up to {}", name, table.rows.size(), kMostRows);
  Calibration c;
  c.figure_ = figure;
  for (size_t i = 0; i < table.rows.size(); ++i) {
    Row row;
    Traits& t = row.traits;
    const std::string_view device = table.field(i, "device"), precision = table.field(i, "precision");
    const cost::Accelerator* known = cost::accelerator_named(device);
    if (known == nullptr)
      config_error("{}:{}: device '{}' is not known", name, table.lines[i], device.substr(0, 60));
    t.device = known->name;
    t.family = known->family;
    const std::optional<Precision> p = cost::precision_named(precision);
    if (!p) config_error("{}:{}: precision '{}' is not known", name, table.lines[i], precision.substr(0, 60));
    t.precision = *p;
    t.framework = table.field(i, "framework");
    t.document = table.field(i, "document");
    t.model = table.field(i, "model");
    t.words = table.field(i, "words");
    std::vector<double> numbers;
    for (const std::string& column : number_columns()) {
      bool bad = false;
      const std::optional<double> n = number(table.field(i, column), bad);
      if (bad || !n || std::abs(*n) > 1e6)
        config_error("{}:{}: {} is '{}', accepted: a number", name, table.lines[i], column,
                     table.field(i, column).substr(0, 40));
      numbers.push_back(*n);
    }
    size_t at = 0;
    t.date = numbers[at++];
    t.experts = numbers[at++] != 0;
    for (double& n : t.layout) n = numbers[at++];
    for (double& n : t.shares) n = numbers[at++];
    row.log_ratio = numbers[at++];
    row.noise = numbers[at++];
    for (Score& s : row.scores) {
      s.deviation = numbers[at++];
      s.off = numbers[at++];
      if (s.deviation <= 0)
        config_error("{}:{}: a deviation of {}, accepted: above 0", name, table.lines[i], s.deviation);
    }
    if (row.noise <= 0 || std::abs(row.log_ratio) > kLogLimit)
      config_error("{}:{}: noise above 0 and log_ratio between -{} and {} are accepted", name, table.lines[i],
                   kLogLimit, kLogLimit);
    c.rows_.push_back(std::move(row));
  }
  c.solve();
  return c;
}

const Calibration& Calibration::built_in() {
  static const Calibration calibration = read(kBuiltInCalibration, "the built-in calibration", Figure::time);
  return calibration;
}

const Calibration& Calibration::built_in_memory() {
  static const Calibration calibration =
      read(kBuiltInMemoryCalibration, "the built-in calibration of memory", Figure::memory);
  return calibration;
}

}  // namespace heddle::advisor
