// The operands of products that are rounded to eight bits (passes/fp8.h).
#pragma once

#include "heddle/base/words.h"

namespace heddle::passes {

enum class Fp8 : uint8_t {
  off,
  blocks,  // e4m3, scales of powers of two over blocks of 128
};
constexpr auto words_of(Fp8) { return std::to_array<Word<Fp8>>({{Fp8::off, "off"}, {Fp8::blocks, "blocks"}}); }

}  // namespace heddle::passes
