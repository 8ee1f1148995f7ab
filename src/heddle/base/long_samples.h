// Treatment of a sample that is longer than a sequence.
#pragma once

#include "heddle/base/words.h"

namespace heddle {

enum class LongSamples : uint8_t {
  refuse,
  cut,   // its end is lost; without a target left it is left out
  drop,  // it is left out
};
constexpr auto words_of(LongSamples) {
  return std::to_array<Word<LongSamples>>(
      {{LongSamples::refuse, "refuse"}, {LongSamples::cut, "cut"}, {LongSamples::drop, "drop"}});
}

}  // namespace heddle
