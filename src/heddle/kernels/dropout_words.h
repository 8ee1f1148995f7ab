// Draws of dropout: the word of an element, and whether it is kept. The counter is (column ÷ 4, token of the whole
// batch, site, step), the key the run's seed; word i of the four is that of column 4·(column ÷ 4) + i.
#pragma once

#include <cmath>
#include <cstdint>

#include "heddle/base/numbers/philox.h"
#include "heddle/device/kernel_call.h"

namespace heddle::kernels {

struct DropoutDraw {
  /// `key`: seed, low and high half, and step, the input `drawn_key`.
  DropoutDraw(const ir::Op& op, const int32_t* key) : DropoutDraw(op) {
    seed = {static_cast<uint32_t>(key[0]), static_cast<uint32_t>(key[1])};
    step = static_cast<uint32_t>(key[2]);
  }
  /// For a caller that must not read the key here.
  explicit DropoutDraw(const ir::Op& op) {
    const double rate = op.attributes.number("rate");
    least_kept = static_cast<uint32_t>(std::llround(rate * 0x1p32));
    factor = 1 / (1 - rate);
    site = static_cast<uint32_t>(op.attributes.integer("site"));
  }
  /// The words of columns 4·block … 4·block + 3 of a token.
  Philox::Words words(int64_t block, int32_t token) const {
    return Philox::at({static_cast<uint32_t>(block), static_cast<uint32_t>(token), site, step}, seed);
  }

  std::array<uint32_t, 2> seed{};
  uint32_t step = 0, site = 0;
  uint32_t least_kept = 0;  // a word below it puts its element to zero
  double factor = 1;        // of what is kept
};

}  // namespace heddle::kernels
