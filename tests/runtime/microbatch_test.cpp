// The inputs that follow from a microbatch's tokens, row by row of each rank.
#include "heddle/runtime/microbatch.h"

#include <gtest/gtest.h>

#include <set>

#include "heddle/model/microbatch_inputs.h"

namespace heddle::runtime {
namespace {

using Numbers = std::vector<int32_t>;

ir::Listing listing_with(const std::string& what, int64_t rows, ir::Attributes attributes,
                         Dtype dtype = Dtype::i32) {
  ir::Listing listing;
  listing.add_input({.name = "given",
                     .dtype = dtype,
                     .shape = {rows},
                     .given = ir::Given::microbatch,
                     .owner = std::string(model::kMicrobatchOwner),
                     .attributes = attributes.set("what", what)});
  return listing;
}

ir::Coordinates place_of(int tp, int tp_ranks, int cp, int cp_ranks) {
  ir::Coordinates place;
  place.index = {tp, cp};
  place.degree = {tp_ranks, cp_ranks, 1, 1, 1, 1, 1};
  return place;
}

template <class Number = int32_t>
std::vector<Number> made(const Microbatch& microbatch, const ir::Listing& listing,
                         const ir::Coordinates& place = {}) {
  const device::Inputs inputs = inputs_of(microbatch, listing, place);
  const auto numbers = inputs.get<Number>("given", 0);
  return {numbers.begin(), numbers.end()};
}

TEST(Microbatch, IdsAndShiftedLabels) {
  // Two sequences of S = 3 with one further depth: 3 + 1 + 1 ids each; one id masked, one padding.
  Microbatch micro{.tokens = {10, 11, 12, 13, 14, 20, 21, -1, 23, 24}, .masked = {0, 0, 1, 0, 0, 0, 0, 0, 0, 0}};
  const auto rows = [](const char* what, int distance, Dtype dtype = Dtype::i32) {
    return listing_with(what, 6, {{"distance", distance}, {"sequence", 3}, {"width", 5}}, dtype);
  };
  EXPECT_EQ(made(micro, rows("ids", 0)), (Numbers{10, 11, 12, 20, 21, -1}));
  EXPECT_EQ(made(micro, rows("ids", 1)), (Numbers{11, 12, 13, 21, -1, 23}));
  EXPECT_EQ(made(micro, rows("labels", 1)), (Numbers{11, -1, 13, 21, -1, 23}));
  EXPECT_EQ(made(micro, rows("labels", 2)), (Numbers{-1, 13, 14, -1, 23, 24}));
  EXPECT_EQ(made<double>(micro, rows("weights", 1, Dtype::f64)), std::vector<double>(6, 1));
  micro.weights = {0, .5, 1, 1, 1, 2, 2, 2, 2, 2};
  EXPECT_EQ(made<double>(micro, rows("weights", 1, Dtype::f64)), (std::vector<double>{.5, 1, 1, 2, 2, 2}));
  micro.masked.pop_back();
  EXPECT_THROW(made(micro, rows("labels", 1)), InternalError) << "too few mask entries";
  EXPECT_THROW(made({.tokens = {1, 2, 3}}, rows("ids", 0)), InternalError) << "too few ids";
  EXPECT_THROW(made(micro, listing_with("hours", 6, {})), InternalError) << "nothing of that name";
}

TEST(Microbatch, IdsOfRanksOfCp) {
  const Microbatch micro{.tokens = {0, 1, 2, 3, 4, 5, 6, 7, 8}};
  const ir::Listing listing = listing_with("ids", 4, {{"distance", 0}, {"sequence", 8}, {"width", 9}, {"cp", 2}});
  EXPECT_EQ(made(micro, listing, place_of(0, 1, 0, 2)), (Numbers{0, 1, 6, 7}));
  EXPECT_EQ(made(micro, listing, place_of(0, 1, 1, 2)), (Numbers{2, 3, 4, 5}));
}

TEST(Microbatch, DocumentsStartBehindTheIdThatEndsOne) {
  const Microbatch micro{.tokens = {9, 4, 9, 9, 1, 2, 3, 5, 5, 5, 5, 9, 7, 9}};  // 5 inputs, 2 more
  EXPECT_EQ(made(micro, listing_with("starts", 10, {{"sequence", 5}, {"document_end", 9}})),
            (Numbers{0, 1, 1, 3, 4, 0, 0, 0, 0, 0}));
}

TEST(Microbatch, ChunksStartEverySoManyTokens) {
  const Microbatch micro{.tokens = {9, 4, 9, 4, 1, 2, 3, 5, 5, 5, 5, 9, 7, 9}};  // 5 inputs, 2 more
  EXPECT_EQ(made(micro, listing_with("starts", 10, {{"sequence", 5}, {"chunk", 2}})),
            (Numbers{0, 0, 2, 2, 4, 0, 0, 2, 2, 4}));
  // Of documents that are apart: those of each.
  EXPECT_EQ(
      made(micro, listing_with("starts", 10, {{"sequence", 5}, {"chunk", 2}, {"apart", 1}, {"document_end", 9}})),
      (Numbers{0, 1, 1, 3, 3, 0, 0, 2, 2, 4}));
}

// The token of the whole batch that a row is: sequences of several microbatches, positions of ranks of cp and tp.
TEST(Microbatch, DropoutCountsTokensOfTheWholeBatch) {
  constexpr int64_t kS = 16;
  for (const auto& [cp, tp] : {std::pair{1, 1}, {2, 1}, {1, 2}, {2, 2}}) {
    std::set<int32_t> seen;
    for (int c = 0; c < cp; ++c) {
      for (int t = 0; t < tp; ++t) {
        const ir::Listing listing =
            listing_with("tokens", 2 * kS / cp / tp, {{"sequence", kS}, {"cp", cp}, {"tp", tp}});
        for (const int32_t token : made({.first_sequence = 2}, listing, place_of(t, tp, c, cp)))
          EXPECT_TRUE(seen.insert(token).second) << token;
      }
    }
    EXPECT_EQ(seen.size(), 2u * kS);
    EXPECT_EQ(*seen.begin(), 2 * kS);
    EXPECT_EQ(*seen.rbegin(), 4 * kS - 1);
  }
  EXPECT_THROW(made({.first_sequence = 1 << 27}, listing_with("tokens", kS, {{"sequence", kS}})), InternalError);
  EXPECT_EQ(drawn_key(0x123456789, 42), (std::array<int32_t, 3>{0x23456789, 1, 42}));
}

TEST(Microbatch, PositionsOfRanksDocumentsAndCaches) {
  Microbatch micro{.tokens = {1, 0, 2, 3, 0, 4, 5, 6, 7}};  // eight inputs and the label after them
  micro.places = {8 + 5, -1, 3};
  const auto positions = [&](int64_t rows, ir::Attributes attributes, int c = 0, int cp = 1) {
    attributes.set("sequence", int64_t{8}).set("cp", int64_t{cp});
    return made(micro, listing_with("positions", rows, std::move(attributes)), place_of(0, 1, c, cp));
  };
  EXPECT_EQ(positions(8, {}), (Numbers{0, 1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(positions(8, {{"apart", 1}, {"document_end", 0}}), (Numbers{0, 1, 0, 1, 2, 0, 1, 2}));
  EXPECT_EQ(positions(4, {}, 1, 2), (Numbers{2, 3, 4, 5}));
  EXPECT_EQ(positions(4, {{"apart", 1}, {"document_end", 0}}, 1, 2), (Numbers{0, 1, 2, 0}));
  EXPECT_EQ(positions(3, {{"cached", 1}}), (Numbers{5, -1, 3}));
  EXPECT_EQ(made(micro, listing_with("places", 3, {})), micro.places);
  micro.begins.assign(9, Begins::nothing);  // where the microbatch says so
  micro.begins[3] = Begins::document;
  EXPECT_EQ(positions(8, {{"apart", 1}}), (Numbers{0, 1, 2, 0, 1, 2, 3, 4}));
}

TEST(Microbatch, ScalesHaveTheTypeOfTheText) {
  const std::vector<double> scales{0.1, 0.2};
  for (const Dtype dtype : {Dtype::f32, Dtype::f64}) {
    ir::Listing listing;
    listing.add_input({.name = "scales", .dtype = dtype, .shape = {2}});
    device::Inputs inputs(1);
    set_scales(inputs, scales, listing);
    EXPECT_EQ(dtype == Dtype::f64 ? inputs.get<double>("scales")[0] : inputs.get<float>("scales")[0],
              dtype == Dtype::f64 ? 0.1 : static_cast<double>(0.1f));
  }
  device::Inputs none(1);
  set_scales(none, scales, ir::Listing());
  EXPECT_TRUE(none.get<double>("scales").empty());
}

// Rows of tables by hashes of a token and those before it, up to an end token 2 or the begin of the document.
TEST(Microbatch, RowsOfNgrams) {
  ir::Attributes attributes{{"each", 4},  {"sequence", 4},        {"width", 5},        {"cp", 1},
                            {"size", 3},  {"heads", 2},           {"end", 2},          {"seed", 1234},
                            {"index", 0}, {"vocabulary", 248320}, {"base", 20'000'000}};
  const auto rows = [&](int64_t count) { return listing_with("ngrams", 4 * count, attributes); };
  const Numbers first{1550955, 34283473, 43450156, 72666520}, second{2118327, 33393837, 50944769, 74096618},
      third{10210480, 37389101, 49481680, 78676960}, fourth{14675317, 23751536, 44582194, 76926286};
  const auto joined = [](const std::vector<Numbers>& parts) {
    Numbers all;
    for (const Numbers& part : parts) all.insert(all.end(), part.begin(), part.end());
    return all;
  };
  EXPECT_EQ(made({.tokens = {5, 9, 9, 3, 0}}, rows(4)), joined({first, second, third, fourth}));
  // Behind an end token, and in a sequence of its own, a token stands as if it were the first.
  const Numbers restarted = made({.tokens = {7, 2, 5, 9, 0, 5, 9, 9, -1, 0}}, rows(8));
  EXPECT_EQ(Numbers(restarted.begin() + 8, restarted.begin() + 16), joined({first, second}));
  EXPECT_EQ(Numbers(restarted.begin() + 16, restarted.end()), joined({first, second, third, Numbers(4, -1)}));
  attributes.set("apart", 1);
  const Begins no = Begins::nothing;
  Microbatch marked{.tokens = {7, 7, 5, 9, 0}, .begins = {no, no, Begins::document, no, no}};
  const Numbers apart = made(marked, rows(4));
  EXPECT_EQ(Numbers(apart.begin() + 8, apart.end()), joined({first, second}));
  // A rank of cp has the first and the last quarter, or the two between.
  attributes.set("apart", 0).set("cp", 2);
  EXPECT_EQ(made({.tokens = {5, 9, 9, 3, 0}}, rows(2), place_of(0, 1, 1, 2)), joined({second, third}));
  // Rows of a cache have the tokens before them beside them, the nearest first.
  attributes.set("cp", 1).set("sequence", 1).set("width", 2).set("before", 2);
  EXPECT_EQ(made({.tokens = {9, -1, 3, -1, 5, -1, -1, -1}, .before = {9, 5, 9, 9, 2, 9, -1, -1}}, rows(4)),
            joined({third, fourth, first, Numbers(4, -1)}));
  EXPECT_THROW(made({.tokens = {9, -1}}, rows(1)), InternalError) << "no tokens before a row";
}

}  // namespace
}  // namespace heddle::runtime
