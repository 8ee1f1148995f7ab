// The traits of a job that calibration compares: the device, the software and its release, the model, the layout,
// and how its estimated step divides. Two jobs are alike as far as these are.
#pragma once

#include <array>
#include <string>

#include "advisor/points/point_job.h"

namespace heddle::advisor {

struct Traits {
  std::string device, framework, document, model, words;  // words: a hash of how it ran
  cost::Family family = cost::Family::other;
  cost::Precision precision = cost::Precision::bf16;
  bool experts = false;
  double doubt = 0;  // variance of the logarithm that comes of what the source does not print
  double date = 0;   // years since 2000; 0: not known
  /// Logarithms to base 2: sequence, tp, pp, ep, cp, dp, microbatch, microbatches, billions of active parameters,
  /// chunks; and twice the part of layers that are recomputed, 2 for a frozen base.
  std::array<double, 12> layout{};
  /// Parts of the step: products, attention, traffic, launches, tensor, exchange, context, pipeline, data, bubble,
  /// optimizer. Of memory: persistent and active bytes.
  std::array<double, 11> shares{};
};

/// Traits for a job's time, by its estimate.
Traits time_traits(const PointJob& point, const Estimate& estimate);
/// Traits for its memory.
Traits memory_traits(const PointJob& point, const Estimate& estimate);

/// Estimated figures. What makes jobs alike differs: time by how the step divides and its software, memory by what
/// the framework counts.
enum class Figure { time, memory };
/// Covariance of two jobs' ln(estimated ÷ measured), before anything is measured.
double covariance(const Traits& a, const Traits& b, Figure figure);
/// Variance that no trait explains: another day, another host; more where part of the job is assumed.
double noise_variance(const Traits& traits, Figure figure);

/// Maker of a family's devices, as a number.
int maker_of(cost::Family family);
/// Width of a precision's operands in products: 16, 8 or 4 bits.
int bits_of(cost::Precision precision);

}  // namespace heddle::advisor
