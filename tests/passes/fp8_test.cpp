// Operands of the layers' linear maps in eight bits: what is kept, what is rounded again, and what stays.
#include "heddle/passes/fp8.h"

#include "heddle/passes/recompute.h"
#include "heddle/passes/round_weights.h"
#include "tests/passes/expect_becomes.h"
#include "tests/passes/one_layer.h"

namespace heddle::test {
namespace {

const Rewrite kFp8 = [](ir::Listing& listing) { passes::fp8(listing); };

const std::string kBeginning = kOneLayersBeginning;

TEST(Fp8Pass, KeepsRowsInEightBits) {
  expect_becomes(one_layer() + kOneLayersBackward, kFp8, kBeginning + R"(
    n.fp8, n.scales = round_rows n                       compute @mlp
    u = linear_fp8 n.fp8, n.scales, up                   compute @mlp
    a = silu u                                           compute @mlp
    a.fp8, a.scales = round_rows a                       compute @mlp
    y = linear_fp8 a.fp8, a.scales, down                 compute @mlp
  no layer
    send y {step 1}                                      comm.pp.forward.send
listing 0, I
    dy = receive {columns 8, dtype f32, rows 4, step 1}  comm.pp.backward.receive
  layer 0
    da = linear_fp8_dgrad dy, down {dtype f32}
    du = silu_dgrad da, u
    dn = linear_fp8_dgrad du, up {dtype f32}
    dx, dg = rms_norm_dgrad dn, x, g, rstd, none
listing 0, W
  layer 0
    linear_fp8_wgrad a.fp8, a.scales, dy -> grad.down
    linear_fp8_wgrad n.fp8, n.scales, du -> grad.up
)");
}

// Once a step for all uses; gradients read the turned form where they are to.
TEST(Fp8Pass, RoundsWeightsOnceAStep) {
  const auto once = [](int microbatches, bool turns) {
    return [=](ir::Listing& listing) {
      passes::fp8(listing);
      passes::round_weights(listing, microbatches, turns);
    };
  };
  const std::string uses_once = R"(
listing 0
  weight      up             bf16[16, 8]
  weight      other          bf16[16, 8]
listing 0, F
    x = receive {columns 8, dtype bf16, rows 4, step -1}  comm.pp.forward.receive
  layer 0
    u = linear x, up
    v = linear x, other
    z = add u, v
  no layer
    send z {step 1}                                      comm.pp.forward.send
listing 0, I
    du = receive {columns 16, dtype bf16, rows 4, step 1}  comm.pp.backward.receive
  layer 0
    dx = linear_dgrad du, up {dtype bf16}
)";
  const std::string beginning = R"(
listing 0
  weight      up             bf16[16, 8]
  weight      other          bf16[16, 8]
  weight      up.fp8         u8[16, 8]
  weight      up.fp8_scales  u8[1, 1]
)";
  const std::string forward = R"(
listing 0, F
    x = receive {columns 8, dtype bf16, rows 4, step -1}  comm.pp.forward.receive
  layer 0
    x.fp8, x.scales = round_rows x
    u = linear_fp8 x.fp8, x.scales, up.fp8, none, up.fp8_scales {dtype bf16}
    v = linear_fp8 x.fp8, x.scales, other
    z = add u, v
  no layer
    send z {step 1}                                      comm.pp.forward.send
listing 0, I
    du = receive {columns 16, dtype bf16, rows 4, step 1}  comm.pp.backward.receive
  layer 0
)";
  expect_becomes(uses_once, once(1, false), beginning + R"(
listing 0, begin
    round_weight up -> up.fp8, up.fp8_scales
)" + forward + R"(
    dx = linear_fp8_dgrad du, up.fp8, up.fp8_scales {dtype bf16}
)");
  expect_becomes(uses_once, once(1, true), beginning + R"(
  weight      up.fp8_turned         u8[8, 16]
  weight      up.fp8_turned_scales  u8[1, 1]
listing 0, begin
    round_weight up -> up.fp8, up.fp8_scales, up.fp8_turned, up.fp8_turned_scales
)" + forward + R"(
    dx = linear_fp8_dgrad du, up.fp8_turned, up.fp8_turned_scales {dtype bf16, turned 1}
)");
}

// What is made again is rounded again there, and what the backward reads for itself too: `a` of its activation.
TEST(Fp8Pass, RoundsAgainWhatIsThereAnyway) {
  const Rewrite both = [](ir::Listing& listing) {
    passes::recompute(listing, passes::recompute_groups("norm"), false);
    passes::fp8(listing);
  };
  expect_becomes(one_layer("    z = silu a\n") + R"(
    du_other = silu_dgrad da, a
    du = silu_dgrad du_other, u
    dn = linear_dgrad du, up {dtype f32}
    dx, dg = rms_norm_dgrad dn, x, g, rstd, none
listing 0, W
  layer 0
    linear_wgrad a, dy -> grad.down
    linear_wgrad n, du -> grad.up
)",
                 both, kBeginning + R"(
    n.fp8, n.scales = round_rows n                       compute @mlp
    u = linear_fp8 n.fp8, n.scales, up                   compute @mlp
    a = silu u                                           compute @mlp
    a.fp8, a.scales = round_rows a                       compute @mlp
    y = linear_fp8 a.fp8, a.scales, down                 compute @mlp
    z = silu a
  no layer
    send y {step 1}                                      comm.pp.forward.send
listing 0, I
    dy = receive {columns 8, dtype f32, rows 4, step 1}  comm.pp.backward.receive
  layer 0
    da = linear_fp8_dgrad dy, down {dtype f32}
    du_other = silu_dgrad da, a
    du = silu_dgrad du_other, u
    dn = linear_fp8_dgrad du, up {dtype f32}
    dx, dg = rms_norm_dgrad dn, x, g, rstd, none
listing 0, W
  layer 0
    a.fp8.2, a.scales.2 = round_rows a again
    linear_fp8_wgrad a.fp8.2, a.scales.2, dy -> grad.down
    n.again, rstd.again = rms_norm x, g {epsilon 1e-06} again
    n.again.fp8, n.again.scales = round_rows n.again again
    linear_fp8_wgrad n.again.fp8, n.again.scales, du -> grad.up
)");
}

// The router's map is wide, the head is of no layer, and a weight that something else reads stays whole for all.
TEST(Fp8Pass, LeavesTheOthers) {
  expect_stays(R"(
listing 0
  weight      gate     f32[3, 8]
  weight      head     bf16[16, 8]
  weight      shared   bf16[8, 8]
listing 0, F
    x = receive {columns 8, dtype bf16, rows 4, step -1}  comm.pp.forward.receive
  layer 0
    logits = linear x, gate {wide 1}
    s = linear x, shared
    t = linear s, shared {wide 1}
  no layer
    y = linear s, head
    send y {step 1}                                      comm.pp.forward.send
)",
               kFp8);
}

}  // namespace
}  // namespace heddle::test
