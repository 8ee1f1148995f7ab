#include "advisor/points/traits.h"

#include <algorithm>
#include <cmath>

#include "advisor/points/point_software.h"
#include "heddle/base/hash.h"
#include "heddle/model/shapes/shape_presets.h"

namespace heddle::advisor {

namespace {

double log2_of(double n) { return std::log2(std::max(1.0, n)); }

// One name for all spellings of a model and its cuts to fewer layers.
std::string architecture_of(const model::Shape& s) {
  const model::Shape* preset = model::find_shape(s.name);
  if (preset != nullptr && preset->hidden_size == s.hidden_size) return preset->name;
  return fmt::format("h{}f{}e{}x{}g{}", s.hidden_size, s.intermediate_size, s.n_routed_experts,
                     s.moe_intermediate_size, s.num_key_value_heads);
}

Traits common_traits(const PointJob& p) {
  Traits t;
  const Job& j = p.job;
  t.device = j.device.name;
  t.family = j.device.family;
  t.precision = j.precision;
  t.framework = p.release.framework;
  t.document = p.release.document;
  t.date = p.release.date;
  t.model = architecture_of(j.shape);
  t.experts = j.shape.n_routed_experts > 0;
  t.words = fmt::format("{:08x}", static_cast<uint32_t>(fnv1a(p.words, kFnvStart) >> 16));
  const plan::Degrees& l = j.mesh;
  t.layout = {log2_of(j.sequence),
              log2_of(l.tp),
              log2_of(l.pp),
              log2_of(l.ep),
              log2_of(l.cp),
              log2_of(l.dp),
              log2_of(j.microbatch),
              log2_of(search::microbatches(j)),
              std::log2(model::active_parameters(j.shape) / 1e9),
              log2_of(j.chunks),
              j.recompute.has(GroupName::layer) ? 2 * j.recompute.every : 0,
              j.frozen_base ? 2.0 : 0.0};
  return t;
}

// Variances of the parts of the covariance, chosen by descent on the errors of rows predicted without themselves,
// without their model, and without their source (tools/choose_covariance.py).
constexpr double kDevicePrecision = 0.0025, kFamilyBits = 0.0031, kSoftware = 0.0038, kModel = 0.0023,
                 kModelDevice = 0.0013, kExpertsSoftware = 0.2, kLayout = 0.025, kModelLayout = 0.18,
                 kTwins = 0.022, kWords = 0.088, kShares = 0.04, kSharesSoftware = 0.007, kNoise = 0.001;
constexpr double kAssumedNoise = 0.15;  // an assumed layout is off by a factor of 1.5
constexpr double kUnknownBytes = 0.3;   // memory follows the layout and the sequence directly
constexpr double kMemory = 0.0012, kMemoryModel = 0.0094, kMemoryFramework = 0.00075, kMemoryLayout = 0.031,
                 kMemoryTwins = 0.19, kMemoryWords = 0.0003, kMemoryNoise = 0.001;
constexpr double kYears = 1, kTwinYears = 0.5, kUndated = 2;  // distances in time at which likeness falls to 1 / e
constexpr double kLayoutScale = 2.0, kTwinScale = 0.5, kShareScale = 0.15;

double likeness(double squared_distance, double scale) { return std::exp(-squared_distance / (2 * scale * scale)); }

template <size_t N>
double squared_distance(const std::array<double, N>& a, const std::array<double, N>& b) {
  double sum = 0;
  for (size_t i = 0; i < N; ++i) sum += (a[i] - b[i]) * (a[i] - b[i]);
  return sum;
}

// A framework's kernels for another device are still its code.
std::string_view own_name(std::string_view framework) {
  if (framework.ends_with(kForeign)) framework.remove_suffix(kForeign.size());
  return framework;
}

double time_covariance(const Traits& a, const Traits& b) {
  if (maker_of(a.family) != maker_of(b.family)) return a.model == b.model ? kModel : 0;
  double linear = 0;
  for (size_t i = 0; i < a.shares.size(); ++i) linear += a.shares[i] * b.shares[i];
  double sum = kShares * likeness(squared_distance(a.shares, b.shares), kShareScale);
  const bool device = a.device == b.device, model = a.model == b.model;
  if (device && a.precision == b.precision) sum += kDevicePrecision;
  if (model) sum += kModel;
  if (a.family != b.family) return sum;
  const bool bits = bits_of(a.precision) == bits_of(b.precision), framework = a.framework == b.framework;
  const double years = a.date > 0 && b.date > 0 ? std::abs(a.date - b.date) : kUndated;
  const double away = squared_distance(a.layout, b.layout), near_layout = likeness(away, kLayoutScale),
               near_date = std::exp(-years / kYears);
  sum += kLayout * near_layout;
  if (bits) sum += kFamilyBits;
  if (own_name(a.framework) == own_name(b.framework) && a.experts == b.experts) sum += kExpertsSoftware;
  if (framework && bits) sum += kSoftware * near_date + kSharesSoftware * linear;
  if (framework && bits && a.words == b.words) sum += kWords * near_layout;
  if (model && device) sum += kModelDevice + kModelLayout * near_layout * near_date;
  if (model && device && framework && bits)
    sum += kTwins * likeness(away, kTwinScale) * std::exp(-years / kTwinYears);
  return sum;
}

// Memory is alike in one framework's figures, in what stays and what passes apart, and over layouts of one model.
double memory_covariance(const Traits& a, const Traits& b) {
  const double bytes = a.shares[0] * b.shares[0] + a.shares[1] * b.shares[1];
  const bool framework = a.framework == b.framework, model = a.model == b.model;
  double sum = kMemory * bytes;
  if (model) sum += kMemoryModel;
  if (!framework) return sum;
  const double near_layout = likeness(squared_distance(a.layout, b.layout), kLayoutScale);
  sum += kMemoryFramework * bytes + kMemoryLayout * near_layout;
  if (model) sum += kMemoryTwins * near_layout;
  if (model && a.words == b.words) sum += kMemoryWords * near_layout;
  return sum;
}

}  // namespace

Traits time_traits(const PointJob& p, const Estimate& e) {
  Traits t = common_traits(p);
  const search::Waterfall& w = e.time;
  t.shares = {w.products, w.attention, w.traffic, w.launches, w.tensor,   w.exchange,
              w.context,  w.pipeline,  w.data,    w.bubble,   w.optimizer};
  for (double& share : t.shares) share /= e.step_s;
  if (!p.tells_time()) t.doubt = kAssumedNoise;
  return t;
}

Traits memory_traits(const PointJob& p, const Estimate& e) {
  Traits t = common_traits(p);
  t.shares[0] = e.static_bytes / e.peak_bytes;
  t.shares[1] = e.activation_bytes / e.peak_bytes;
  if (!p.tells_memory()) t.doubt = kUnknownBytes;
  return t;
}

double covariance(const Traits& a, const Traits& b, Figure figure) {
  return figure == Figure::time ? time_covariance(a, b) : memory_covariance(a, b);
}

double noise_variance(const Traits& t, Figure figure) {
  return t.doubt + (figure == Figure::time ? kNoise : kMemoryNoise);
}

int maker_of(cost::Family family) {
  switch (family) {
    case cost::Family::ampere:
    case cost::Family::hopper:
    case cost::Family::blackwell: return 0;
    case cost::Family::ascend: return 1;
    case cost::Family::cdna3: return 2;
    case cost::Family::gaudi: return 3;
    case cost::Family::tpu: return 4;
    case cost::Family::other: break;
  }
  return 5;
}

int bits_of(cost::Precision p) {
  if (p == cost::Precision::bf16 || p == cost::Precision::fp16) return 16;
  return p == cost::Precision::nvfp4 ? 4 : 8;
}

}  // namespace heddle::advisor
