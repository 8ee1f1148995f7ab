#include "heddle/formats/mxfp4.h"

#include <array>
#include <cmath>

#include "heddle/base/error.h"

namespace heddle::formats {

void read_mxfp4(const StoredTensor& blocks, const StoredTensor& scales, int64_t first, std::span<float> into) {
  constexpr std::array<float, 16> kNumbers{0.0F,  0.5F,  1.0F,  1.5F,  2.0F,  3.0F,  4.0F,  6.0F,
                                           -0.0F, -0.5F, -1.0F, -1.5F, -2.0F, -3.0F, -4.0F, -6.0F};
  const int64_t elements = blocks.elements() * 2;
  HEDDLE_CHECK(
      blocks.type == StoredType::u8 && scales.type == StoredType::u8 && scales.elements() * kMxfp4Block == elements,
      "'{}' is no MXFP4", printable(blocks.name));
  HEDDLE_CHECK(first >= 0 && first <= elements - std::ssize(into), "elements {}+{} of '{}', which has {}", first,
               into.size(), printable(blocks.name), elements);
  for (float& value : into) {
    const auto at = static_cast<size_t>(first);
    const int bits = blocks.bytes[at / 2] >> (at % 2 * 4) & 15;
    value = std::ldexp(kNumbers[bits], scales.bytes[at / kMxfp4Block] - 127);
    ++first;
  }
}

}  // namespace heddle::formats
