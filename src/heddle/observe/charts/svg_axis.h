// One axis of a chart: a range, its ticks at round numbers, and labels in one common unit.
//
// Linear ticks step by 1, 2 or 5 times a power of ten, for bytes by a power of two. Logarithmic ticks stand at
// powers of ten, with 2 and 5 between them where there is room.
#pragma once

#include <string>
#include <vector>

namespace heddle::observe {

enum class AxisScale { linear, log };
enum class AxisUnit { plain, count, bytes, microseconds };

struct Tick {
  double value = 0;
  std::string label;
};

/// Larger magnitudes have no place on an axis; charts treat them like NaN, as a gap.
inline constexpr double kLargestPlotted = 1e200;

struct Axis {
  double low = 0;
  double high = 1;
  AxisScale scale = AxisScale::linear;
  AxisUnit unit = AxisUnit::plain;
  std::vector<Tick> ticks;

  /// 0 at `low`, 1 at `high`; outside of it beyond. NaN for what can't be drawn: NaN, infinity, and on a
  /// logarithmic axis zero and less.
  double position(double value) const;
};

struct AxisRequest {
  double low = 0;
  double high = 1;
  AxisScale scale = AxisScale::linear;
  AxisUnit unit = AxisUnit::plain;
  int about_ticks = 5;
  bool whole_steps = false;  // no ticks between whole numbers
  bool tight = false;        // end at the range given instead of at ticks
};

/// A range that is empty or no range is widened to one; a logarithmic axis of a range not above zero becomes
/// linear.
Axis make_axis(AxisRequest request);

/// A value with its unit as a reader wants it, with µ: for tooltips and cards.
std::string axis_value_text(double value, AxisUnit unit);

}  // namespace heddle::observe
