// The grid of exact sums, the segments of an expert's rows that are partials of their own, and sums of squares in
// fixed point. See passes/exact_sums.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <limits>

#include "heddle/device/kernel_call.h"

namespace heddle::kernels {

/// Partials are rounded to multiples of 2^-46 (1.4e-14), to even on a tie. They must stay below 32, and sums below
/// 64 (what is exact reaches to 128); NaN marks what does not.
constexpr int kExactGrid = -46;

/// sum (+)= partial on the grid.
template <class A>
void add_on_grid(const A* partial, int64_t count, bool overwrite, double* sum) {
  constexpr double kShift = 1.5 * 64;  // 1.5 · 2^(52 + kExactGrid): adding it leaves no bits below the grid
#pragma omp parallel for simd schedule(static) if (count > 65536)
  for (int64_t i = 0; i < count; ++i) {
    const auto p = static_cast<double>(partial[i]);
    const double rounded = (p + kShift) - kShift, total = overwrite ? rounded : sum[i] + rounded;
    sum[i] = std::abs(p) < 32 && std::abs(total) < 64 ? total : std::numeric_limits<double>::quiet_NaN();
  }
}

/// body(expert, first row, last row, is the expert's first): rows of expert e of source s, in order; `n` (may be
/// null) holds rows received as n[1, source, expert].
template <class Body>
void for_each_segment(const device::TensorView& offsets, const device::TensorView& n, Body body) {
  const int64_t sources = n ? n.dim(1) : 1, experts = offsets.elements() - 1;
  for (int64_t e = 0; e < experts; ++e) {
    int64_t first = offsets.as<const int32_t>()[e];
    for (int64_t s = 0; s < sources; ++s) {
      const int64_t rows =
          n ? n.as<const int32_t>()[(sources + s) * experts + e] : offsets.as<const int32_t>()[e + 1] - first;
      body(e, first, first + rows, s == 0);
      first += rows;
    }
  }
}

/// Σ g² in multiples of 2^-100 and below 2^25, as limbs of 32 bits in f64: limbs of many sums may be added up in
/// f64.
constexpr int kSquareLimbs = 4;
class ExactSquares {
 public:
  void add(double g) {
    const double high = g * g * 0x1p37;
    if (!(high < 0x1p62)) {
      broken_ = true;
      return;
    }
    const auto whole = static_cast<int64_t>(high);  // the rest has 63 bits more
    sum_ +=
        (static_cast<__int128>(whole) << 63) + static_cast<int64_t>((high - static_cast<double>(whole)) * 0x1p63);
  }
  void add(const ExactSquares& other) {
    sum_ += other.sum_;
    broken_ = broken_ || other.broken_;
  }
  std::array<double, kSquareLimbs> limbs() const {
    std::array<double, kSquareLimbs> limbs{};
    auto rest = static_cast<unsigned __int128>(sum_);
    for (double& limb : limbs) {
      limb = broken_ ? std::numeric_limits<double>::quiet_NaN() : static_cast<double>(static_cast<uint32_t>(rest));
      rest >>= 32;
    }
    return limbs;
  }
  /// The number that summed limbs stand for.
  static double value(const double* limbs) {
    // Carries first, so that equal sums have equal limbs.
    double carry = 0, value = 0;
    for (int i = 0; i < kSquareLimbs; ++i) {
      const double limb = limbs[i] + carry;
      carry = i + 1 < kSquareLimbs ? std::floor(limb * 0x1p-32) : 0;
      value += std::ldexp(limb - carry * 0x1p32, 32 * i - 100);
    }
    return value;
  }

 private:
  __int128 sum_ = 0;
  bool broken_ = false;
};

}  // namespace heddle::kernels
