#include "check/difference.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace heddle::check {

double unit_of(Dtype dtype) {
  switch (dtype) {
    case Dtype::bf16: return 0x1p-8;
    case Dtype::f32: return 0x1p-24;
    default: return 0x1p-53;
  }
}

double root_mean_square(const Numbers& a, const Numbers& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += (a[i] - b[i]) * (a[i] - b[i]);
  return a.empty() ? 0 : std::sqrt(sum / static_cast<double>(a.size()));
}

double root_mean_square(const Numbers& a) {
  double sum = 0;
  for (const double x : a) sum += x * x;
  return a.empty() ? 0 : std::sqrt(sum / static_cast<double>(a.size()));
}

namespace {

constexpr double kShare = 0.5;    // of a whole tensor's distance, that any slice of it is granted
constexpr double kLeast = 1e-11;  // relative: what sums in fp64 are off by in another order

// The bounds of a slice's root mean square of errors, and of each row's.
struct Bound {
  double slice = 0, whole = 0;
  Numbers rows;
};

int64_t row_width(const Slice& slice) {
  const std::vector<int64_t> dims = slice.dims();
  return dims.size() < 2 ? std::max<int64_t>(1, slice.elements()) : std::max<int64_t>(1, dims.back());
}

Bound bound_of(const Whole& whole, const Slice& slice, const Numbers& expected) {
  Bound bound;
  const int64_t width = row_width(slice), rows = std::ssize(expected) / width;
  bound.rows.assign(static_cast<size_t>(rows), 0.0);
  for (const Numbers& rounded : whole.rounded) {
    const Numbers part = taken(rounded, slice);
    bound.slice = std::max(bound.slice, root_mean_square(part, expected));
    bound.whole = std::max(bound.whole, root_mean_square(rounded, whole.values));
    for (int64_t r = 0; r < rows; ++r) {
      double sum = 0;
      for (int64_t i = r * width; i < (r + 1) * width; ++i) {
        const double off = part[static_cast<size_t>(i)] - expected[static_cast<size_t>(i)];
        sum += off * off;
      }
      double& row = bound.rows[static_cast<size_t>(r)];
      row = std::max(row, std::sqrt(sum / static_cast<double>(width)));
    }
  }
  const double floor = kLeast * root_mean_square(whole.values) + std::numeric_limits<double>::min();
  bound.slice = kMargin * std::max(bound.slice, kShare * bound.whole) + floor;
  for (double& row : bound.rows) row = kRowMargin * std::max(row, bound.whole) + floor;
  return bound;
}

// The bound of an updated weight: the rounding of its store, and what its gradient's bound lets its step turn.
Numbers bounds_of_weight(const Record& record, const Reference& reference) {
  const Layout& layout = reference.dump().layout;
  const Adamw& rule = *layout.optimizer;
  Record gradient = record;
  gradient.stage = Stage::gradient;
  const Whole& whole = reference.of(gradient);
  const Numbers g = taken(whole.values, record.slice), weight = taken(reference.of(record).values, record.slice);
  const Bound bound = bound_of(whole, record.slice, g);
  const auto width = static_cast<size_t>(row_width(record.slice));
  Numbers off(g.size(), 0.0);  // of single elements: a few rows and columns may have most of the noise
  for (const Numbers& rounded : whole.rounded) {
    const Numbers part = taken(rounded, record.slice);
    for (size_t i = 0; i < g.size(); ++i) off[i] = std::max(off[i], kRowMargin * std::abs(part[i] - g[i]));
  }
  Numbers bounds;
  for (size_t i = 0; i < g.size(); ++i) {
    const double apart = std::max(bound.rows[i / width], off[i]);
    const double sure = std::max(0.0, std::abs(g[i]) - apart);
    // A step of Adam's first is the gradient over its own size, so its size alone does not matter.
    const double turn =
        std::min(2.0, apart * rule.eps / ((sure + rule.eps) * (sure + rule.eps)) + (sure == 0 ? 2.0 : 0.0));
    bounds.push_back(kMargin * unit_of(layout.dtype) * std::abs(weight[i]) + rule.lr * (turn + 1e-6));
  }
  return bounds;
}

Difference held_to(const Numbers& expected, const Record& record, const Reference& reference, double stretch) {
  Difference d;
  d.record = &record;
  const Numbers& found = record.values;
  const auto finite = [](double x) { return std::isfinite(x); };
  if (!std::all_of(found.begin(), found.end(), finite)) {
    d.error = std::numeric_limits<double>::infinity();
    d.bound = 1;
    return d;
  }
  d.error = root_mean_square(found, expected);
  if (record.stage == Stage::weight) {
    const Numbers bounds = bounds_of_weight(record, reference);
    d.bound = root_mean_square(bounds) * stretch;
    for (size_t i = 0; i < found.size(); ++i)
      d.row_ratio = std::max(d.row_ratio, std::abs(found[i] - expected[i]) / (4 * bounds[i] * stretch));
    return d;
  }
  const Whole& whole = reference.of(record);
  const Bound bound = bound_of(whole, record.slice, taken(whole.values, record.slice));
  d.bound = bound.slice * stretch;
  const int64_t width = row_width(record.slice);
  for (size_t r = 0; r < bound.rows.size(); ++r) {
    double sum = 0;
    for (size_t i = r * static_cast<size_t>(width); i < (r + 1) * static_cast<size_t>(width); ++i)
      sum += (found[i] - expected[i]) * (found[i] - expected[i]);
    d.row_ratio = std::max(d.row_ratio, std::sqrt(sum / static_cast<double>(width)) / (bound.rows[r] * stretch));
  }
  return d;
}

}  // namespace

double Difference::ratio() const { return std::max(bound > 0 ? error / bound : 0, row_ratio); }

Difference compared(const Record& record, const Reference& reference) {
  return held_to(taken(reference.of(record).values, record.slice), record, reference, 1);
}

double ratio_to(const Numbers& predicted, const Record& record, const Reference& reference) {
  // A multiple of the reference has its errors multiplied too.
  const double size = root_mean_square(taken(reference.of(record).values, record.slice));
  const double stretch = size > 0 ? std::max(1.0, root_mean_square(predicted) / size) : 1;
  return held_to(predicted, record, reference, stretch).ratio();
}

}  // namespace heddle::check
