// Products cut beside their gathers and sums: the texts before and after.
#include "heddle/passes/overlap/tiles.h"

#include "tests/passes/expect_becomes.h"

namespace heddle::passes {
namespace {

using test::expect_becomes;
using test::expect_stays;

test::Rewrite cut(int panels) {
  return
      [=](ir::Listing& listing) { tiles(listing, panels, [](const ir::Listing&, const ir::Op&) { return true; }); };
}

constexpr const char* kTableTiles = R"(
listing 0
  weight      x       f32[8, 8]
  weight      g       f32[8]
  weight      up      f32[6, 8]
  weight      down    f32[8, 6]
  weight      wide    f32[16, 8]
  weight      head    f32[5, 8]
  weight      narrow  f32[6, 5]
  accumulator grad    f32[6, 8]
)";

// Two sequences of four rows a rank, of which a panel has one; the whole of both ranks is 16 rows.
TEST(Tiles, PanelsGoThroughAWholeMlp) {
  expect_becomes(std::string(kTableTiles) + R"(
listing 0, F
  layer 0
    n, rstd = rms_norm x, g {epsilon 1e-06}
    all = all_gather n {ranks 2, runs 2}                 comm.tp
    u = linear all, up
    a = silu u
    part = linear a, down
    y = reduce_scatter part {ranks 2, runs 2}            comm.tp
    z = silu y
)",
                 cut(2), std::string(kTableTiles) + R"(
  activation  all     f32[16, 8]
  activation  u       f32[16, 6]
  activation  a       f32[16, 6]
  activation  part    f32[16, 8]
  activation  y       f32[8, 8]
listing 0, F
  layer 0
    n, rstd = rms_norm x, g {epsilon 1e-06}
    all.rows[0:8] = all_gather n.rows[0:4] {ranks 2, runs 1}    comm.tp
    all.rows[8:16] = all_gather n.rows[4:8] {ranks 2, runs 1}    comm.tp
    u.rows[0:8] = linear all.rows[0:8], up
    u.rows[8:16] = linear all.rows[8:16], up
    a.rows[0:8] = silu u.rows[0:8]
    a.rows[8:16] = silu u.rows[8:16]
    part.rows[0:8] = linear a.rows[0:8], down
    part.rows[8:16] = linear a.rows[8:16], down
    y.rows[0:4] = reduce_scatter part.rows[0:8] {ranks 2, runs 1}    comm.tp
    y.rows[4:8] = reduce_scatter part.rows[8:16] {ranks 2, runs 1}    comm.tp
    z = silu y
)");
}

// The residual sum and its norm stand between the sum of one block and the gather of the next. Of one run, what a
// rank has of its own rows is contiguous.
TEST(Tiles, PanelsGoThroughTheNormBetweenTwoBlocks) {
  expect_becomes(std::string(kTableTiles) + R"(
listing 0, F
  layer 0
    o = silu wide
    part = linear o, head
    back = reduce_scatter part {ranks 2, runs 1}         comm.tp
    s = add back, back
    all = all_gather s {ranks 2, runs 1}                 comm.tp
    u = linear all, narrow
)",
                 cut(2), std::string(kTableTiles) + R"(
  activation  part    f32[16, 5]
  activation  back    f32[8, 5]
  activation  s       f32[8, 5]
  activation  all     f32[16, 5]
  activation  u       f32[16, 6]
listing 0, F
  layer 0
    o = silu wide
    part.rows[0:4/8] = linear o.rows[0:4/8], head
    part.rows[4:8/8] = linear o.rows[4:8/8], head
    back.rows[0:4] = reduce_scatter part.rows[0:4/8] {ranks 2, runs 1}    comm.tp
    back.rows[4:8] = reduce_scatter part.rows[4:8/8] {ranks 2, runs 1}    comm.tp
    s.rows[0:4] = add back.rows[0:4], back.rows[0:4]
    s.rows[4:8] = add back.rows[4:8], back.rows[4:8]
    all.rows[0:4/8] = all_gather s.rows[0:4] {ranks 2, runs 1}    comm.tp
    all.rows[4:8/8] = all_gather s.rows[4:8] {ranks 2, runs 1}    comm.tp
    u.rows[0:4/8] = linear all.rows[0:4/8], narrow
    u.rows[4:8/8] = linear all.rows[4:8/8], narrow
)");
}

// What is not worth it stays whole, and so does what stands between it and a product.
TEST(Tiles, CollectivesThatAreNotWorthItStay) {
  expect_becomes(
      std::string(kTableTiles) + R"(
listing 0, F
  layer 0
    r = silu x
    of_all = all_gather r {ranks 2, runs 1}              comm.tp
    part = linear of_all, head
    back = reduce_scatter part {ranks 2, runs 1}         comm.tp
    s = add back, back
    all = all_gather s {ranks 2, runs 1}                 comm.tp
    t = scale all {factor 2}
)",
      [](ir::Listing& listing) {
        tiles(listing, 2, [](const ir::Listing&, const ir::Op& op) { return op.kind() == "reduce_scatter"; });
      },
      std::string(kTableTiles) + R"(
  activation  part    f32[16, 5]
  activation  back    f32[8, 5]
listing 0, F
  layer 0
    r = silu x
    of_all = all_gather r {ranks 2, runs 1}              comm.tp
    part.rows[0:4/8] = linear of_all.rows[0:4/8], head
    part.rows[4:8/8] = linear of_all.rows[4:8/8], head
    back.rows[0:4] = reduce_scatter part.rows[0:4/8] {ranks 2, runs 1}    comm.tp
    back.rows[4:8] = reduce_scatter part.rows[4:8/8] {ranks 2, runs 1}    comm.tp
    s = add back, back
    all = all_gather s {ranks 2, runs 1}                 comm.tp
    t = scale all {factor 2}
)");
}

// Two sequences cannot be shared out among three panels, so each has rows of both.
TEST(Tiles, UnequalPanelsWhereRowsAreOdd) {
  expect_becomes(R"(
listing 0
  weight      x       f32[10, 8]
  weight      up      f32[6, 8]
listing 0, F
  layer 0
    n = silu x
    all = all_gather n {ranks 3, runs 2}                 comm.tp
    u = linear all, up
)",
                 cut(3), R"(
listing 0
  weight      x       f32[10, 8]
  weight      up      f32[6, 8]
  activation  all     f32[30, 8]
  activation  u       f32[30, 6]
listing 0, F
  layer 0
    n = silu x
    all.rows[0:1/5] = all_gather n.rows[0:1/5] {ranks 3, runs 2}    comm.tp
    all.rows[1:3/5] = all_gather n.rows[1:3/5] {ranks 3, runs 2}    comm.tp
    all.rows[3:5/5] = all_gather n.rows[3:5/5] {ranks 3, runs 2}    comm.tp
    u.rows[0:1/5] = linear all.rows[0:1/5], up
    u.rows[1:3/5] = linear all.rows[1:3/5], up
    u.rows[3:5/5] = linear all.rows[3:5/5], up
)");
}

// A gather that no product reads, one whose rows come in two halves of the sequence, and rows of one.
TEST(Tiles, TextsThatStay) {
  for (const char* text : {R"(
    n = silu x
    all = all_gather n {ranks 2, runs 1}                 comm.tp
    t = silu all
)",
                           R"(
    n = silu x
    all = all_gather n {ranks 2, runs 1, zigzag 1}       comm.tp
    u = linear all, up
)",
                           R"(
    n = silu x
    all = all_gather n {ranks 2, runs 8}                 comm.tp
    u = linear all, up
)"}) {
    expect_stays(std::string(kTableTiles) + "listing 0, F\n  layer 0\n" + text, cut(2));
  }
}

}  // namespace
}  // namespace heddle::passes
