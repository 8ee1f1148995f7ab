// The order of a block's ops where exchanges take time.
#include "heddle/passes/weave.h"

#include "tests/passes/expect_becomes.h"

namespace heddle::passes {
namespace {

using test::expect_becomes;
using test::expect_stays;

// The forward of a text, in the order in which its block runs: ops that compute last 1 µs, others `else_us`.
test::Rewrite woven(double else_us) {
  return [=](ir::Listing& listing) {
    ir::StepProgram program;
    program.listings.push_back(listing);
    ir::Block block = ir::make_block(program, 0, ir::BlockKind::F);
    block.mixing = ir::Block::Mixing::free;
    weave(
        program, block,
        [=](const ir::Listing&, const ir::Op& op) {
          return op.def->stream == ir::StreamKind::compute ? 1 : else_us;
        },
        false);
    listing.ops.clear();
    for (const ir::Step& step : block.steps) listing.ops.push_back(program.listings[0].ops[step.op]);
  };
}

constexpr const char* kTableWeave = R"(
listing 0
  weight      x       f32[4, 8]
  weight      w       f32[8, 8]
  weight      up      f32[8, 8]
  weight      down    f32[8, 8]
)";

TEST(Weave, ComputesWhileRowsAreOnTheirWay) {
  expect_becomes(std::string(kTableWeave) + R"(
listing 0, F
  layer 0
    sent = linear x, w
    whole = all_gather sent {ranks 2, runs 1}            comm.tp
    made = silu whole
    back = reduce_scatter made {ranks 2, runs 1}         comm.tp
    u = linear x, up
    shared = linear u, down
    y = add back, shared
)",
                 woven(2), std::string(kTableWeave) + R"(
listing 0, F
  layer 0
    sent = linear x, w
    whole = all_gather sent {ranks 2, runs 1}            comm.tp
    u = linear x, up
    shared = linear u, down
    made = silu whole
    back = reduce_scatter made {ranks 2, runs 1}         comm.tp
    y = add back, shared
)");
}

TEST(Weave, NothingWhereNothingCommunicates) {
  expect_stays(std::string(kTableWeave) + R"(
listing 0, F
  layer 0
    a = silu x
    b = linear x, w
    c = linear b, up
    d = linear c, down
)",
               woven(2));
}

// A block begins with what it has longest to wait for, unless that reads what another op makes.
TEST(Weave, NotAheadOfWhatItReads) {
  expect_stays(std::string(kTableWeave) + R"(
listing 0, F
  layer 0
    a = linear x, w
    b = linear a, up
    whole = all_gather b {ranks 2, runs 1}               comm.tp
    c = linear whole, down
)",
               woven(2));
}

}  // namespace
}  // namespace heddle::passes
