#include "heddle/observe/charts/svg_axis.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "heddle/observe/units.h"

namespace heddle::observe {
namespace {

struct LabelUnit {
  double size;
  const char* name;
};

// The largest unit not above the axis' largest magnitude.
LabelUnit label_unit(AxisUnit unit, double largest) {
  static constexpr std::array<LabelUnit, 7> bytes = {{{1, " B"},
                                                      {0x1p10, " KiB"},
                                                      {0x1p20, " MiB"},
                                                      {0x1p30, " GiB"},
                                                      {0x1p40, " TiB"},
                                                      {0x1p50, " PiB"},
                                                      {0x1p60, " EiB"}}};
  static constexpr std::array<LabelUnit, 7> counts = {
      {{1, ""}, {1e3, " K"}, {1e6, " M"}, {1e9, " G"}, {1e12, " T"}, {1e15, " P"}, {1e18, " E"}}};
  static constexpr std::array<LabelUnit, 7> times = {
      {{1e-3, " ns"}, {1, " µs"}, {1e3, " ms"}, {1e6, " s"}, {1e6, " s"}, {1e6, " s"}, {1e6, " s"}}};
  const auto& units = unit == AxisUnit::bytes ? bytes : unit == AxisUnit::microseconds ? times : counts;
  if (unit == AxisUnit::plain) return {1, ""};
  LabelUnit best = units[0];
  for (const LabelUnit& candidate : units) {
    if (largest >= candidate.size * 0.9999) best = candidate;
  }
  return best;
}

std::string plain_label(double number) {
  if (number == 0) return "0";
  const double size = std::abs(number);
  if (size >= 1e6 || size < 1e-4) {
    const int exponent = static_cast<int>(std::floor(std::log10(size) + 1e-9));
    return fmt::format("{:.3g}e{}", number / std::pow(10.0, exponent), exponent);
  }
  return fmt::format("{:.6g}", number);
}

double round_step(double rough, AxisUnit unit) {
  if (unit == AxisUnit::bytes && rough >= 1) return std::exp2(std::round(std::log2(rough)));
  const double power = std::pow(10.0, std::floor(std::log10(rough)));
  const double factor = rough / power;
  return power * (factor < 1.5 ? 1 : factor < 3.5 ? 2 : factor < 7.5 ? 5 : 10);
}

void add_linear_ticks(Axis& axis, const AxisRequest& request) {
  double step = round_step((axis.high - axis.low) / request.about_ticks, request.unit);
  if (request.whole_steps) step = std::max(1.0, step);
  if (!request.tight) {
    axis.low = std::floor(axis.low / step + 1e-9) * step;
    axis.high = std::ceil(axis.high / step - 1e-9) * step;
  }
  const LabelUnit unit = label_unit(request.unit, std::max(std::abs(axis.low), std::abs(axis.high)));
  // Counting in steps instead of adding them up keeps 0.3 from becoming 0.30000000000000004.
  const double first = std::ceil(axis.low / step - 1e-9);
  for (int i = 0; i < 100; ++i) {
    const double value = (first + i) * step;
    if (value > axis.high + step * 1e-9) break;
    const double clean = value == 0 ? 0 : value;
    axis.ticks.push_back({clean, clean == 0 ? "0" : plain_label(clean / unit.size) + unit.name});
  }
}

void add_log_ticks(Axis& axis, const AxisRequest& request) {
  if (!request.tight) {
    axis.low = std::pow(10.0, std::floor(std::log10(axis.low) + 1e-9));
    axis.high = std::pow(10.0, std::ceil(std::log10(axis.high) - 1e-9));
  }
  const double decades = std::log10(axis.high / axis.low);
  const int every = std::max(1, static_cast<int>(std::ceil(decades / (request.about_ticks + 2))));
  const int first = static_cast<int>(std::floor(std::log10(axis.low) + 1e-9));
  for (int exponent = first; exponent <= first + decades + 1; exponent += every) {
    for (const double factor : {1.0, 2.0, 5.0}) {
      if (factor != 1 && decades > 2.5) continue;
      const double value = factor * std::pow(10.0, exponent);
      if (value < axis.low * (1 - 1e-9) || value > axis.high * (1 + 1e-9)) continue;
      const LabelUnit unit = label_unit(request.unit, value);
      axis.ticks.push_back({value, plain_label(value / unit.size) + unit.name});
    }
  }
}

}  // namespace

double Axis::position(double value) const {
  if (!(std::abs(value) <= kLargestPlotted)) return std::numeric_limits<double>::quiet_NaN();
  if (scale == AxisScale::linear) return (value - low) / (high - low);
  if (value <= 0) return std::numeric_limits<double>::quiet_NaN();
  return std::log(value / low) / std::log(high / low);
}

Axis make_axis(AxisRequest request) {
  const auto usable = [](double v) { return std::abs(v) <= kLargestPlotted; };
  if (!usable(request.low) || !usable(request.high) || request.low > request.high) {
    request.low = 0;
    request.high = 1;
  }
  if (request.scale == AxisScale::log && request.low <= 0) request.scale = AxisScale::linear;
  const double middle = (request.low + request.high) / 2;
  // A range that vanishes beside its own numbers has no ticks that can be told apart.
  if (request.high - request.low <= std::abs(middle) * 1e-9) {
    const double room = middle == 0 ? 1 : std::abs(middle) / 2;
    request.low = middle - room;
    request.high = middle + room;
  }
  Axis axis{request.low, request.high, request.scale, request.unit, {}};
  if (axis.scale == AxisScale::log) {
    add_log_ticks(axis, request);
  } else {
    add_linear_ticks(axis, request);
  }
  return axis;
}

std::string axis_value_text(double value, AxisUnit unit) {
  switch (unit) {
    case AxisUnit::bytes: return bytes_text(value);
    case AxisUnit::count: return count_text(value);
    case AxisUnit::microseconds: {
      std::string text = duration_text(value * 1e-6);
      if (text.ends_with(" us")) text.replace(text.size() - 2, 1, "µ");
      return text;
    }
    case AxisUnit::plain: return number_text(value);
  }
  return "";
}

}  // namespace heddle::observe
