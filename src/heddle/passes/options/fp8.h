// The operands of products that are rounded to eight bits (passes/fp8.h).
#pragma once

#include "heddle/base/words.h"

namespace heddle::passes {

enum class Fp8 : uint8_t {
  off,
  blocks,  // e4m3, scales of powers of two over blocks of 128
};
constexpr auto words_of(Fp8) { return std::to_array<Word<Fp8>>({{Fp8::off, "off"}, {Fp8::blocks, "blocks"}}); }

/// When weights are rounded for these products (passes/round_weights.h).
enum class Fp8Weights : uint8_t {
  step,  // once a step, where they are used more than once
  use,   // at each use
};
constexpr auto words_of(Fp8Weights) {
  return std::to_array<Word<Fp8Weights>>({{Fp8Weights::step, "step"}, {Fp8Weights::use, "use"}});
}

}  // namespace heddle::passes
