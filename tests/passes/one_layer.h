// The text that tests of recompute and offload have in common: one layer, a norm and an MLP, on a rank in the
// middle of a pipeline, with what differentiation adds.
#pragma once

#include <string>

namespace heddle::test {

/// Its values, and its forward up to the norm.
inline constexpr const char* kOneLayersBeginning = R"(
listing 0
  weight      g        f32[8]
  weight      up       f32[16, 8]
  weight      down     f32[8, 16]
  accumulator grad.up  f32[16, 8]
  accumulator grad.down f32[8, 16]
listing 0, F
    x = receive {columns 8, dtype f32, rows 4, step -1}  comm.pp.forward.receive
  layer 0
    n, rstd = rms_norm x, g {epsilon 1e-06}
)";

/// Its forward and the beginning of its backward. `rest` are further ops of the forward; `second` is the part to
/// which what follows the first product belongs.
inline std::string one_layer(const std::string& rest = "", const std::string& second = "mlp") {
  return std::string(kOneLayersBeginning) + R"(    u = linear n, up                                     compute @mlp
    a = silu u                                           compute @)" +
         second + R"(
    y = linear a, down                                   compute @)" +
         second + "\n" + rest + R"(
  no layer
    send y {step 1}                                      comm.pp.forward.send
listing 0, I
    dy = receive {columns 8, dtype f32, rows 4, step 1}  comm.pp.backward.receive
  layer 0
    da = linear_dgrad dy, down {dtype f32}
)";
}

/// The rest of its backward.
inline constexpr const char* kOneLayersBackward = R"(
    du = silu_dgrad da, u
    dn = linear_dgrad du, up {dtype f32}
    dx, dg = rms_norm_dgrad dn, x, g, rstd, none
listing 0, W
  layer 0
    linear_wgrad a, dy -> grad.down
    linear_wgrad n, du -> grad.up
)";

}  // namespace heddle::test
