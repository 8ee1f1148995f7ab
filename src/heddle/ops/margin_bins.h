// The bins in which margins of choices are counted: eight to an octave on each side of 0, from 2^-12 to 2. What
// lies nearer or farther is in the innermost or outermost of its side. Counts are whole numbers, so that their sum
// over ranks has the same bits in any order. Read by the compilers of devices too: no heavy header, and plain
// C++17.
#pragma once

#include <cstdint>
#include <cstring>

namespace heddle {

constexpr int64_t kMarginOctaves = 13, kBinsAnOctave = 8, kMarginSide = kMarginOctaves * kBinsAnOctave;
constexpr int64_t kMarginBins = 2 * kMarginSide;

/// The bin of the margin that this f32 is the bits of. Bins increase with the margin: those of negative ones first.
constexpr int32_t margin_bin_of(uint32_t word) {
  constexpr int32_t kInnermost = (127 - 12) * static_cast<int32_t>(kBinsAnOctave);  // 2^-12 has this exponent
  constexpr int32_t kSide = static_cast<int32_t>(kMarginSide);
  const int32_t step = static_cast<int32_t>((word & 0x7fffffffu) >> 20) - kInnermost;
  const int32_t inside = step < 0 ? 0 : step, outwards = inside < kSide ? inside : kSide - 1;
  return word > 0x80000000u ? kSide - 1 - outwards : kSide + outwards;  // −0 is not below 0
}
inline int64_t margin_bin(float margin) {
  uint32_t word = 0;
  std::memcpy(&word, &margin, sizeof word);
  return margin_bin_of(word);
}

/// The margin at which bin `bin` begins; that of kMarginBins ends the last.
constexpr double margin_edge(int64_t bin) {
  const int64_t outwards = bin >= kMarginSide ? bin - kMarginSide : kMarginSide - bin;
  if (outwards == 0) return 0;
  const double octave = static_cast<double>(int64_t{1} << (outwards / kBinsAnOctave)) / (1 << 12);
  const double size = (1 + static_cast<double>(outwards % kBinsAnOctave) / kBinsAnOctave) * octave;
  return bin >= kMarginSide ? size : -size;
}

/// The margin below which `share` of all counted ones lie, those of a bin spread evenly; 0 where none is counted.
constexpr double margin_quantile(const double* counts, double share) {
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
