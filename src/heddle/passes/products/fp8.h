// Rounds the operands of the layers' linear maps to eight bits (ops/matrices/fp8.cpp): of a differentiated text,
// after what is made again is known,
//
//   n, rstd = rms_norm x, g                     n, rstd = rms_norm x, g
//   y = linear n, w                             n.fp8, n.scales = round_rows n
//   …                                           y = linear_fp8 n.fp8, n.scales, w
//   dn = linear_dgrad dy, w              →      …
//   linear_wgrad n, dy -> grad.w                dn = linear_fp8_dgrad dy, w
//                                               linear_fp8_wgrad n.fp8, n.scales, dy -> grad.w
//
// so that the backward keeps eight bits of n in the place of n. Where something else of the backward reads n, or n
// is made again there, it is rounded once more beside its reader, and nothing of it is kept in eight bits.
//
// Which maps: those in a layer whose weight no other map reads and that make X of X; so not the router's, which is
// wide, nor the head's and the embedding.
#pragma once

#include "heddle/base/words.h"
#include "heddle/ir/listing.h"

namespace heddle::passes {

enum class Fp8 : uint8_t {
  off,
  blocks,  // e4m3, scales of powers of two over blocks of 128
};
constexpr auto words_of(Fp8) { return std::to_array<Word<Fp8>>({{Fp8::off, "off"}, {Fp8::blocks, "blocks"}}); }

void fp8(ir::Listing& listing);

}  // namespace heddle::passes
