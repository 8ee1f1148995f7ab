// Gradients and weights that are cut among ranks: where they are gathered and summed, what stays whole.
#include <gtest/gtest.h>

#include "heddle/passes/shard/shard_gradients.h"
#include "heddle/passes/shard/shard_weights.h"
#include "tests/passes/expect_becomes.h"
#include "tests/passes/one_layer.h"

namespace heddle::passes {
namespace {

using test::expect_becomes;
using test::expect_stays;

const std::string kBeforeShard = test::one_layer() + test::kOneLayersBackward;

std::string replaced_shard(std::string text, std::string_view from, const std::string& to) {
  const size_t at = text.find(from);
  if (at == std::string::npos) ADD_FAILURE() << "no '" << from << "' in\n" << text;
  return text.replace(at, from.size(), to);
}
std::string before_line_shard(std::string text, std::string_view at, const std::string& lines) {
  return text.insert(text.rfind('\n', text.find(at)) + 1, lines);
}
std::string behind_line_shard(std::string text, std::string_view at, const std::string& lines) {
  return text.insert(text.find('\n', text.find(at)) + 1, lines);
}

// Ops that compute last 1 µs, gathers `us`.
Durations gathers_last(double us) {
  return [=](const ir::Listing&, const ir::Op& op) {
    return op.def->stream == ir::StreamKind::compute && ir::runs(*op.def) ? 1.0 : us;
  };
}

// A rewrite of the listing of two ranks, with these parameters; `cut` of them are cut among both.
using TextPass = std::function<void(model::RankText&)>;
test::Rewrite of_text(const std::vector<std::string>& parameters, const std::vector<std::string>& cut,
                      const TextPass& pass, const std::string& across = "") {
  return [=](ir::Listing& listing) {
    model::RankText text;
    for (const std::string& name : parameters) {
      model::Parameter p;
      p.name = name;
      p.value = listing.find(name);
      if (std::find(cut.begin(), cut.end(), name) != cut.end()) p.within = "dp";
      p.across = across;
      text.parameters.push_back(p);
      if (listing.find("grad." + name) != ir::none) listing.accumulators[p.value] = {listing.find("grad." + name)};
    }
    text.listing = std::move(listing);
    pass(text);
    listing = std::move(text.listing);
    listing.accumulators.clear();
  };
}

test::Rewrite gradients_shard(const std::vector<std::string>& cut) {
  return of_text({"up", "down"}, cut, [](model::RankText& text) { shard_gradients(text, {{"dp", 2}}); });
}

test::Rewrite weights_shard(const std::string& weight, double us = 1, const BlockOrder& order = {},
                            const std::string& across = "") {
  return of_text(
      {"up", "down"}, {weight},
      [=](model::RankText& text) {
        shard_weights(text, {{weight, 2}}, order, gathers_last(us));
      },
      across);
}

TEST(ShardGradients, AMicrobatchsGradientIsSummedAsSoonAsItIsThere) {
  std::string after = replaced_shard(kBeforeShard, "grad.down f32[8, 16]", "grad.down f32[8, 16] nowhere");
  after = before_line_shard(after, "listing 0, F", "  accumulator sum.grad.down f32[64]\n");
  after = replaced_shard(after, "    linear_wgrad a, dy -> grad.down\n", R"(
    grad.down.now = reserve grad.down
    linear_wgrad a, dy -> grad.down.now fresh
    shard.grad.down = reduce_gradients grad.down.now {one 1, ranks 2}  comm.dp
    accumulate shard.grad.down -> sum.grad.down
)");
  expect_becomes(kBeforeShard, gradients_shard({"down"}), after);
}

TEST(ShardGradients, NothingIsCutWhereNobodyShares) { expect_stays(kBeforeShard, gradients_shard({})); }

// A run is as long as the first rank's: the last has zeros behind its end.
TEST(ShardGradients, RunsAreOfEqualLength) {
  ir::Listing listing = test::listing_of(kBeforeShard);
  of_text({"up", "down"}, {"down"}, [](model::RankText& text) { shard_gradients(text, {{"dp", 3}}); })(listing);
  EXPECT_EQ(listing.elements(listing.find("sum.grad.down"), ir::FixedRows()), 43);
}

// The op that overwrites one of the two overwrites both.
TEST(ShardGradients, ABiasBesideIsSummedWhole) {
  const std::string before =
      replaced_shard(behind_line_shard(kBeforeShard, "accumulator grad.down",
                                       "  weight bias f32[8]\n  accumulator grad.bias f32[8]\n"),
                     "linear_wgrad a, dy -> grad.down", "linear_wgrad a, dy -> grad.down, grad.bias");
  ir::Listing listing = test::listing_of(before);
  of_text({"down", "bias"}, {"down"}, [](model::RankText& text) {
    shard_gradients(text, {{"dp", 2}});
    EXPECT_EQ(text.listing.accumulators.at(text.listing.find("bias")),
              std::vector{text.listing.find("sum.grad.bias")});
  })(listing);
  ir::verify(listing);
  EXPECT_EQ(listing.value(listing.find("grad.bias")).space, ir::Space::nowhere);
  EXPECT_EQ(listing.elements(listing.find("sum.grad.bias"), ir::FixedRows()), 8);
  const auto reductions = std::count_if(listing.ops.begin(), listing.ops.end(),
                                        [](const ir::Op& op) { return op.kind() == "reduce_gradients"; });
  EXPECT_EQ(reductions, 1);
}

// A rounded partial has a place in its microbatch only, too.
TEST(ShardGradients, APartialGoesWithItsSum) {
  std::string before =
      behind_line_shard(kBeforeShard, "accumulator grad.down", "  accumulator exact.down f64[8, 16]\n");
  before = replaced_shard(before, "linear_wgrad a, dy -> grad.down",
                          "linear_wgrad a, dy -> grad.down fresh\n    add_exact grad.down -> exact.down");
  ir::Listing listing = test::listing_of(before);
  of_text({"down"}, {"down"}, [](model::RankText& text) {
    text.listing.accumulators = {{text.listing.find("down"), {text.listing.find("exact.down")}}};
    shard_gradients(text, {{"dp", 2}});
  })(listing);
  ir::verify(listing);
  EXPECT_EQ(listing.value(listing.find("grad.down")).space, ir::Space::nowhere);
  EXPECT_EQ(listing.value(listing.find("sum.exact.down")).dtype, Dtype::f64);
  EXPECT_EQ(listing.find("sum.grad.down"), ir::none);
}

TEST(ShardWeights, AWeightIsGatheredForEachBlockAsLateAsItMay) {
  std::string after = replaced_shard(kBeforeShard, "up       f32[16, 8]", "up       f32[16, 8] nowhere");
  after = before_line_shard(after, "listing 0, F", "  weight master.up f32[64]\n");
  after = behind_line_shard(after, "listing 0, F",
                            "    up.in = gather_rows master.up {dim0 16, dim1 8, ranks 2} ahead  comm.dp\n");
  after = replaced_shard(after, "u = linear n, up  ", "u = linear n, up.in  ");
  after = before_line_shard(after, "da = linear_dgrad",
                            "    up.in.2 = gather_rows master.up {dim0 16, dim1 8, ranks 2}  comm.dp\n");
  after = replaced_shard(after, "linear_dgrad du, up ", "linear_dgrad du, up.in.2 ");
  expect_becomes(kBeforeShard, weights_shard("up"), after);
}

TEST(ShardWeights, OneGatherForWhatFollowsAtOnce) {
  ir::Listing once = test::listing_of(kBeforeShard), twice = once;
  weights_shard("down", 1, {false, {true}})(once);
  weights_shard("down", 1, {false, {false}})(twice);
  const auto gathers = [](const ir::Listing& listing) {
    return std::count_if(listing.ops.begin(), listing.ops.end(),
                         [](const ir::Op& op) { return op.kind() == "gather_rows"; });
  };
  EXPECT_EQ(gathers(once), 1);
  EXPECT_EQ(gathers(twice), 2);
}

// Its run is made at the beginning of a step, out of what each of the others owns.
TEST(ShardWeights, ARunThatSeveralRanksHoldIsNoMaster) {
  ir::Listing listing = test::listing_of(kBeforeShard);
  weights_shard("up", 1, {}, "across")(listing);
  EXPECT_NE(listing.find("shard.up"), ir::none);
  EXPECT_EQ(listing.find("master.up"), ir::none);
}

}  // namespace
}  // namespace heddle::passes
