// The bins in which margins of choices are counted: eight to an octave on each side of 0, from 2^-12 to 2. What lies
// nearer or farther is in the innermost or outermost of its side. Counts are whole numbers, so that their sum over
// ranks has the same bits in any order.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

namespace heddle {

constexpr int64_t kMarginOctaves = 13, kBinsAnOctave = 8, kMarginSide = kMarginOctaves * kBinsAnOctave;
constexpr int64_t kMarginBins = 2 * kMarginSide;

/// Bins increase with the margin: those of negative ones first.
inline int64_t margin_bin(float margin) {
  constexpr int64_t kInnermost = (127 - 12) * kBinsAnOctave;  // of 2^-12, whose exponent has this bias
  const int64_t step = std::bit_cast<uint32_t>(std::abs(margin)) >> 20;
  const int64_t outwards = std::clamp<int64_t>(step - kInnermost, 0, kMarginSide - 1);
  return margin < 0 ? kMarginSide - 1 - outwards : kMarginSide + outwards;
}

/// The margin at which bin `bin` begins; that of kMarginBins ends the last.
inline double margin_edge(int64_t bin) {
  const int64_t outwards = bin >= kMarginSide ? bin - kMarginSide : kMarginSide - bin;
  if (outwards == 0) return 0;
  const double size = std::ldexp(1 + static_cast<double>(outwards % kBinsAnOctave) / kBinsAnOctave,
                                 static_cast<int>(outwards / kBinsAnOctave) - 12);
  return bin >= kMarginSide ? size : -size;
}

/// The margin below which `share` of all counted ones lie, those of a bin spread evenly; 0 where none is counted.
inline double margin_quantile(const double* counts, double share) {
  double all = 0, before = 0;
  for (int64_t b = 0; b < kMarginBins; ++b) all += counts[b];
  if (all == 0) return 0;
  const double wanted = share * all;
  for (int64_t b = 0; b < kMarginBins; ++b) {
    if (counts[b] > 0 && before + counts[b] >= wanted) {
      const double from = margin_edge(b), to = margin_edge(b + 1);
      return from + (to - from) * (wanted - before) / counts[b];
    }
    before += counts[b];
  }
  return margin_edge(kMarginBins);
}

}  // namespace heddle
