// What Muon writes to the end of a step: where matrices travel, and what is left to AdamW.
#include "heddle/passes/muon.h"

#include <gtest/gtest.h>

#include <cmath>

#include "heddle/ir/parse.h"
#include "heddle/ir/print.h"
#include "heddle/ops/ops.h"

namespace heddle::passes {
namespace {

ir::Listing table_muon() {
  return ir::parse_listing(R"(
listing 0
  weight      q        f32[8, 4]
  weight      o        f32[4, 8]
  weight      up       f32[2, 12, 4]
  weight      norm     f32[4]
  weight      embed    f32[16, 4]
  accumulator grad.q   f32[8, 4]
  accumulator grad.o   f32[4, 8]
  accumulator grad.up  f32[2, 12, 4]
  accumulator grad.norm f32[4]
  accumulator grad.embed f32[16, 4]
)",
                           ops::find);
}

model::RankText text() {
  model::RankText text;
  text.listing = table_muon();
  using P = model::Parameter;
  const auto add = [&](const char* name, P p) {
    p.name = name;
    p.value = text.listing.find(name);
    p.decays = p.part != P::Part::norm;
    if (p.released.empty()) p.released = {{name, 0, text.listing.value(p.value).shape[0].count}};
    text.listing.accumulators[p.value] = {text.listing.find(std::string("grad.") + name)};
    text.parameters.push_back(p);
  };
  add("q", {.cuts = {{0, ir::Axis::tp}}, .replica_group = "dense"});
  add("o", {.cuts = {{1, ir::Axis::tp}}, .replica_group = "dense"});
  add("up", {.part = P::Part::experts,
             .experts = 4,
             .cuts = {{0, ir::Axis::ep}},
             .replica_group = "edp",
             .released = {{"gate.{}", 0, 6}, {"up.{}", 6, 6}}});
  add("norm", {.part = P::Part::norm});
  add("embed", {.part = P::Part::embedding});
  return text;
}

std::string written(UpdateOptions options) {
  model::RankText t = text();
  options.rule = OptimizerRule::muon;
  update(t, options);
  const std::string printed = ir::text_of(t.listing);
  EXPECT_EQ(ir::text_of(ir::parse_listing(printed, ops::find)), printed);
  return printed;
}

size_t count(const std::string& text, const std::string& what) {
  size_t found = 0;
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++found;
  return found;
}

TEST(Muon, TakesMatricesOfLayersAndLeavesTheRestToAdamW) {
  const std::string text = written({});
  EXPECT_EQ(count(text, "muon_step"), 3u);
  EXPECT_EQ(count(text, "adamw"), 2u) << "norm and embedding\n" << text;
  EXPECT_EQ(text.find("v.q"), std::string::npos) << "one moment";
  EXPECT_NE(text.find("v.embed"), std::string::npos);
  EXPECT_EQ(count(text, "gather_matrices"), 0u);
  EXPECT_EQ(count(text, "grouped_linear_dgrad"), 15u);
  // Gate and up of two experts are four matrices of six rows.
  EXPECT_NE(text.find("{blocks 1, columns 4, count 4, rows 6}"), std::string::npos) << text;
}

// The published coefficients, five times for each of three parameters, and the size of AdamW's steps.
TEST(Muon, IteratesAsPublished) {
  const std::string text = written({.group_ranks = {}});
  EXPECT_EQ(count(text, "{alpha -4.775, beta 2.0315}"), 15u) << text;
  EXPECT_EQ(count(text, "{alpha 3.4445, beta 1}"), 15u);
  EXPECT_EQ(count(text, "momentum 0.95"), 3u);
  EXPECT_EQ(count(text, fmt::format("decay 0.1, scale {}", 0.2 * std::sqrt(8.0))), 2u) << "q and o are of 8";
  EXPECT_EQ(count(text, fmt::format("decay 0.1, scale {}", 0.2 * std::sqrt(6.0))), 1u) << "gate and up of 6";
}

TEST(Muon, GathersWhatCopiesShareAndWhatIsCut) {
  const std::string text = written({.group_ranks = {{"dense", 2}, {"edp", 3}, {"tp", 2}, {"world", 12}}});
  // Over the copies each form by itself; over tp those that it cuts.
  EXPECT_EQ(count(text, "gather_matrices"), 5u) << text;
  EXPECT_EQ(count(text, "scatter_matrices"), 5u);
  EXPECT_EQ(count(text, "comm.edp"), count(text, "over edp") + count(text, "comm.edp"));
  EXPECT_NE(text.find("cut blocks"), std::string::npos);
  // 16 × 4 of 8 × 4, and 4 × 16 of 4 × 8 side by side.
  EXPECT_NE(text.find("{blocks 1, columns 4, count 1, rows 16}"), std::string::npos) << text;
  EXPECT_NE(text.find("{blocks 2, columns 16, count 1, rows 4}"), std::string::npos) << text;
}

}  // namespace
}  // namespace heddle::passes
