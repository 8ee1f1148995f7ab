// What the backward reads is made again from what is kept.
#include "heddle/passes/recompute.h"

#include "tests/passes/expect_becomes.h"
#include "tests/passes/one_layer.h"

namespace heddle::passes {
namespace {

using test::expect_becomes;
using test::expect_stays;
using test::kOneLayersBackward;
using test::one_layer;

test::Rewrite again(const std::string& words, bool deferred = false) {
  return [=](ir::Listing& listing) { recompute(listing, recompute_groups(words), deferred); };
}

TEST(Recompute, TheNormAheadOfItsFirstReader) {
  const std::string backward = R"(
    du = silu_dgrad da, u
    dn = linear_dgrad du, up {dtype f32}
    dx, dg = rms_norm_dgrad dn, x, g, rstd, none
listing 0, W
  layer 0
    linear_wgrad a, dy -> grad.down
)";
  expect_becomes(one_layer() + backward + R"(
    linear_wgrad n, du -> grad.up
)",
                 again("norm"), one_layer() + backward + R"(
    n.again, rstd.again = rms_norm x, g {epsilon 1e-06} again
    linear_wgrad n.again, du -> grad.up
)");
}

// What I makes again, W reads too.
TEST(Recompute, AChainOnce) {
  expect_becomes(one_layer() + kOneLayersBackward, again("layer"), one_layer() + R"(
    n.again, rstd.again = rms_norm x, g {epsilon 1e-06} again
    u.again = linear n.again, up again                   compute @mlp
    du = silu_dgrad da, u.again
    dn = linear_dgrad du, up {dtype f32}
    dx, dg = rms_norm_dgrad dn, x, g, rstd, none
listing 0, W
  layer 0
    a.again = silu u.again again                         compute @mlp
    linear_wgrad a.again, dy -> grad.down
    linear_wgrad n.again, du -> grad.up
)");
}

TEST(Recompute, OnceAPhaseWhereTheyRunApart) {
  expect_becomes(one_layer() + kOneLayersBackward, again("layer", true), one_layer() + R"(
    n.again, rstd.again = rms_norm x, g {epsilon 1e-06} again
    u.again = linear n.again, up again                   compute @mlp
    du = silu_dgrad da, u.again
    dn = linear_dgrad du, up {dtype f32}
    dx, dg = rms_norm_dgrad dn, x, g, rstd, none
listing 0, W
  layer 0
    n.again.2, rstd.again.2 = rms_norm x, g {epsilon 1e-06} again
    u.again.2 = linear n.again.2, up again               compute @mlp
    a.again = silu u.again.2 again                       compute @mlp
    linear_wgrad a.again, dy -> grad.down
    linear_wgrad n.again.2, du -> grad.up
)");
}

// Of a fused addition and norm only the norm: the sum, which goes on to the next layer, is kept.
TEST(Recompute, PartOfAFusedOp) {
  const std::string text = R"(
listing 0
  weight      g        f32[8]
  weight      w        f32[8, 8]
  accumulator grad.w   f32[8, 8]
listing 0, F
    x = receive {columns 8, dtype f32, rows 4, step -1}  comm.pp.forward.receive
  layer 0
    a = linear x, w
    s, y, rstd = add_rms_norm x, a, g {epsilon 1e-06}
    b = linear y, w
  layer 1
    z = add s, b
listing 0, I
    dz = receive {columns 8, dtype f32, rows 4, step 1}  comm.pp.backward.receive
listing 0, W
  layer 0
)";
  expect_becomes(text + "    linear_wgrad y, dz -> grad.w\n", again("norm"), text + R"(
    y.again, rstd.again = rms_norm s, g {epsilon 1e-06} again
    linear_wgrad y.again, dz -> grad.w
)");
}

TEST(Recompute, NotWhatAnotherLayerReads) {
  expect_stays(one_layer("  layer 1\n    z = silu n\n") + kOneLayersBackward, again("norm"));
}

TEST(Recompute, NotOtherLayersNorOtherGroups) {
  expect_stays(one_layer() + kOneLayersBackward, again("norm:1-3"));
  expect_stays(one_layer() + kOneLayersBackward, again("attention"));
}

}  // namespace
}  // namespace heddle::passes
