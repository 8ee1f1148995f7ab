// Products in one op with their gathers and sums: the texts before and after, and which of them durations choose.
#include "heddle/passes/overlap/fused.h"

#include "heddle/passes/overlap/choice.h"
#include "tests/passes/expect_becomes.h"
#include "tests/passes/sharded_mlp.h"

namespace heddle::passes {
namespace {

using test::expect_becomes;
using test::expect_stays;

test::Rewrite fuse(int pieces) {
  return [=](ir::Listing& listing) {
    fuse_with_collectives(listing, [=](const ir::Listing&, const Pair&) { return pieces; });
  };
}

constexpr const char* kTable = R"(
listing 0
  weight      x       f32[8, 8]
  weight      up      f32[6, 8]
  weight      other   f32[4, 8]
  weight      down    f32[8, 6]
  weight      bias    f32[6]
  accumulator grad    f32[6, 8]
)";

// What nobody else reads is not kept; two of three products read the rows that the first has kept.
TEST(Fused, AnMlp) {
  expect_becomes(std::string(kTable) + R"(
listing 0, F
  layer 0
    n = silu x
    all = all_gather n {ranks 2, runs 2}                 comm.tp
    u = linear all, up, bias
    a = silu u
    part = linear a, down
    y = reduce_scatter part {ranks 2, runs 2}            comm.tp
    z = silu y
)",
                 fuse(3), std::string(kTable) + R"(
listing 0, F
  layer 0
    n = silu x
    u = gather_product n, up, bias {pieces 3, product linear, ranks 2, runs 2}    compute over tp
    a = silu u
    y = product_scatter a, down {pieces 3, product linear, ranks 2, runs 2}    compute over tp
    z = silu y
)");
}

TEST(Fused, KeepsRowsThatOthersRead) {
  expect_becomes(std::string(kTable) + R"(
listing 0, F
  layer 0
    n = silu x
    all = all_gather n {ranks 2, runs 1}                 comm.tp
    u = linear all, up {wide 1}
    v = linear all, other
listing 0, W
  layer 0
    linear_wgrad all, u -> grad
)",
                 fuse(100), std::string(kTable) + R"(
listing 0, F
  layer 0
    n = silu x
    u, all = gather_product n, up {keeps 1, pieces 8, product linear, ranks 2, runs 1, wide 1}    compute over tp
    v = linear all, other
listing 0, W
  layer 0
    linear_wgrad all, u -> grad
)");
}

// The gradients are such pairs too: the sum of a gather's, the gather of a sum's.
TEST(Fused, InputGradients) {
  expect_becomes(std::string(kTable) + R"(
listing 0, I
  layer 0
    dy = silu x
    dall = all_gather dy {ranks 2, runs 1}               comm.tp
    da = linear_dgrad dall, down {dtype f32}
    du = silu da
    dn_all = linear_dgrad du, up {dtype f32}
    dn = reduce_scatter dn_all {ranks 2, runs 1}         comm.tp
)",
                 fuse(1), std::string(kTable) + R"(
listing 0, I
  layer 0
    dy = silu x
    da = gather_product dy, down {dtype f32, pieces 1, product linear_dgrad, ranks 2, runs 1}    compute over tp
    du = silu da
    dn = product_scatter du, up {dtype f32, pieces 1, product linear_dgrad, ranks 2, runs 1}    compute over tp
)");
}

// Rows that another op reads first or that come in halves of a sequence, a product that others read too, and one of
// another phase.
TEST(Fused, TextsThatStay) {
  for (const char* text : {R"(
listing 0, F
  layer 0
    n = silu x
    all = all_gather n {ranks 2, runs 1}                 comm.tp
    t = silu all
    u = linear all, up
)",
                           R"(
listing 0, F
  layer 0
    n = silu x
    all = all_gather n {ranks 2, runs 1, zigzag 1}       comm.tp
    u = linear all, up
)",
                           R"(
listing 0, F
  layer 0
    n = silu x
    part = linear n, up
    y = reduce_scatter part {ranks 2, runs 1}            comm.tp
    z = silu part
)",
                           R"(
listing 0, F
  layer 0
    n = silu x
    all = all_gather n {ranks 2, runs 1}                 comm.tp
listing 0, I
  layer 0
    u = linear all, up
)"}) {
    expect_stays(std::string(kTable) + text, fuse(2));
  }
}

// Where messages and products last so long, and an op that does both as long as the longer, and one piece.
Durations lasting(double message_us, double product_us, double launch_us = 0) {
  return [=](const ir::Listing& of, const ir::Op& op) {
    const ir::FixedRows rows;
    const auto share = [&](ir::ValueId id) {
      return static_cast<double>(of.elements(id, rows)) / static_cast<double>(of.elements(of.base(id), rows));
    };
    if (op.def->by_pieces) {
      const auto pieces = static_cast<double>(ir::pieces_of(op));
      const double works_us = product_us + launch_us * pieces;
      return std::max(works_us, message_us + works_us / pieces);
    }
    if (op.def->collective) return share(op.out[0]) * (message_us - 1) + 1;
    return op.kind() == "linear" ? share(op.out[0]) * product_us + launch_us : 0;
  };
}

int64_t fused_in(const ir::Listing& listing) {
  return std::count_if(listing.ops.begin(), listing.ops.end(), [](const ir::Op& op) { return op.def->by_pieces; });
}
int64_t pieces(double message_us, double product_us, double launch_us, Panels options = {}) {
  options.latency_us = 1;
  ir::Listing listing = test::listing_of(test::kShardedMlp);
  fuse_by_rates(listing, options, lasting(message_us, product_us, launch_us));
  ir::verify(listing);
  for (const ir::Op& op : listing.ops) {
    if (op.def->by_pieces) return op.attributes.integer("pieces");
  }
  return 0;
}

TEST(FusedByRates, TakesTheShortestNumberOfPieces) {
  EXPECT_EQ(pieces(1000, 1000, 0), 8);  // of 64 rows
  EXPECT_EQ(pieces(20, 21, 0), 1);
  EXPECT_EQ(pieces(21, 21, 0), 2);    // of ten latencies
  EXPECT_EQ(pieces(100, 100, 5), 2);  // of launches
  EXPECT_EQ(pieces(1, 100, 10), 0);   // shorter apart
  EXPECT_EQ(pieces(1, 100, 10, {.stated = 5}), 5);
}

TEST(OverlapByCost, TakesWhatIsShortest) {
  const auto left = [](const Durations& durations) {
    ir::Listing listing = test::listing_of(test::kShardedMlp);
    overlap_by_cost(listing, {.latency_us = 1}, durations);
    ir::verify(listing);
    const auto gathers = std::count_if(listing.ops.begin(), listing.ops.end(),
                                       [](const ir::Op& op) { return op.kind() == "all_gather"; });
    return std::pair<int64_t, int64_t>{gathers, fused_in(listing)};
  };
  const auto whole = std::pair<int64_t, int64_t>{1, 0};
  EXPECT_EQ(left(lasting(100, 10'000)), whole);  // 1 % of the time
  const Durations fused_dear = [](const ir::Listing& of, const ir::Op& op) {
    return op.def->by_pieces ? 1e6 : lasting(1000, 1000)(of, op);
  };
  EXPECT_EQ(left(fused_dear).second, 0);
  EXPECT_GT(left(fused_dear).first, 1);
  const Durations dear = [](const ir::Listing& of, const ir::Op& op) {
    return (op.out.size() == 1 && of.value(op.out[0]).part_of != ir::none ? 1e6 : 0.0) +
           lasting(1000, 1000)(of, op);
  };
  EXPECT_EQ(left(dear), (std::pair<int64_t, int64_t>{0, 2}));
}

}  // namespace
}  // namespace heddle::passes
