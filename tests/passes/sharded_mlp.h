// The text that tests of products beside their collectives have in common: an MLP on two tensor parallel ranks.
#pragma once

namespace heddle::test {

inline constexpr const char* kShardedMlp = R"(
listing 0
  weight      x       f32[512, 8]
  weight      up      f32[6, 8]
  weight      down    f32[8, 6]
listing 0, F
  layer 0
    n = silu x
    all = all_gather n {ranks 2, runs 1}                 comm.tp
    u = linear all, up
    a = silu u
    part = linear a, down
    y = reduce_scatter part {ranks 2, runs 1}            comm.tp
    z = silu y
)";

}  // namespace heddle::test
