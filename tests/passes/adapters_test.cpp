// Adapters beside frozen weights, as the pass writes them, and what differentiation leaves out for them.
#include "heddle/passes/adapters.h"

#include <gtest/gtest.h>

#include "heddle/ir/gradient.h"
#include "tests/passes/expect_becomes.h"

namespace heddle::test {
namespace {

using model::Parameter;

/// What stands for a parameter of a test's text.
Parameter of(const std::string& name, Parameter::Part part, std::vector<model::ReleasedPart> released,
             std::vector<model::Cut> cuts = {}, std::string replica_group = "stage", int64_t experts = 0) {
  Parameter p;
  p.name = name;
  p.layer = 0;
  p.part = part;
  p.decays = true;
  p.released = std::move(released);
  p.cuts = std::move(cuts);
  p.replica_group = std::move(replica_group);
  p.experts = experts;
  return p;
}

model::RankText text_of(const std::string& text, std::vector<Parameter> parameters) {
  model::RankText made{listing_of(text), std::move(parameters), {}};
  for (Parameter& p : made.parameters) p.value = made.listing.find(p.name);
  return made;
}

model::RankText adapted(const std::string& text, std::vector<Parameter> parameters, const std::string& targets,
                        const ir::Coordinates& place = {}) {
  std::vector<model::RankText> texts{text_of(text, std::move(parameters))};
  passes::adapters(texts, {.rank = 2, .alpha = 1, .targets = targets}, place, 1);
  ir::verify(texts[0].listing);
  return std::move(texts[0]);
}

const Parameter& named(const model::RankText& text, const std::string& name) {
  for (const Parameter& p : text.parameters) {
    if (p.name == name) return p;
  }
  internal_error("no parameter '{}'", name);
}

const std::string kTwoMaps = R"(
listing 0
  takes       ids_0     i32[4] microbatch of microbatch
  weight      embed     f32[9, 8]
  weight      q.weight  f32[6, 8]
  weight      o.weight  f32[8, 6]
listing 0, F
  no layer
    ids = load {input ids_0}
    x = embedding ids, embed
  layer 0
    0.q = linear x, q.weight  compute  @mla_up
    0.o = linear 0.q, o.weight
)";

std::vector<Parameter> two_maps() {
  return {of("embed", Parameter::Part::embedding, {{"embed", 0, 9}}),
          of("q.weight", Parameter::Part::attention, {{"q.weight", 0, 6}}),
          of("o.weight", Parameter::Part::attention, {{"o.weight", 0, 8}})};
}

std::vector<std::string> kinds_of(const ir::Listing& listing, ir::Phase phase) {
  std::vector<std::string> kinds;
  for (const ir::Op& op : listing.ops) {
    if (op.phase == phase) kinds.emplace_back(op.kind());
  }
  return kinds;
}

TEST(Adapters, StandBesideTheirMapAndItsReadersReadTheSum) {
  const model::RankText text = adapted(kTwoMaps, two_maps(), "q");
  const ir::Listing& listing = text.listing;
  EXPECT_EQ(kinds_of(listing, ir::Phase::F), (std::vector<std::string>{"load", "embedding", "linear", "linear",
                                                                       "scale", "linear", "add", "linear"}));
  const ir::Op& sum = listing.ops[6];
  EXPECT_EQ(listing.value(sum.out[0]).name, "0.q");
  EXPECT_EQ(sum.part, "mla_up");
  EXPECT_EQ(listing.ops[7].in[0], sum.out[0]);
  EXPECT_EQ(listing.ops[4].attributes.number("factor"), 0.5);
  for (const char* name : {"embed", "q.weight", "o.weight"}) {
    EXPECT_TRUE(listing.value(listing.find(name)).frozen) << name;
    EXPECT_TRUE(named(text, name).frozen && !named(text, name).trained) << name;
  }
  const Parameter &a = named(text, "q.lora_A.weight"), &b = named(text, "q.lora_B.weight");
  EXPECT_TRUE(a.trained && b.trained && !a.frozen && !b.frozen);
  EXPECT_EQ(ir::text_of(listing, listing.value(a.value)), "f32[2, 8]");
  EXPECT_EQ(ir::text_of(listing, listing.value(b.value)), "f32[6, 2]");
  EXPECT_EQ(b.start, Parameter::Start::zeros);
}

// Of q neither weight nor input has a gradient; of o, whose input depends on the adapter, the input alone.
TEST(Adapters, WhatOnlyFrozenWeightsNeedIsNotDifferentiated) {
  model::RankText text = adapted(kTwoMaps, two_maps(), "q");
  ir::Value seed = text.listing.value(text.listing.find("0.o"));
  seed.name = "d0.o";
  seed.role = ir::Role::gradient;
  const ir::ValueId d = text.listing.add_value(std::move(seed));
  const auto found = ir::differentiate(text.listing, ops::find("add"), {{text.listing.find("0.o"), d}},
                                       {text.listing.find("x"), text.listing.find("0.q")});
  EXPECT_EQ(found[0], ir::none);
  EXPECT_NE(found[1], ir::none);
  EXPECT_EQ(kinds_of(text.listing, ir::Phase::I),
            (std::vector<std::string>{"linear_dgrad", "linear_dgrad", "scale"}));
  EXPECT_EQ(kinds_of(text.listing, ir::Phase::W), (std::vector<std::string>{"linear_wgrad", "linear_wgrad"}));
  EXPECT_EQ(text.listing.accumulators.size(), 2u);
  EXPECT_FALSE(text.listing.accumulators.contains(text.listing.find("o.weight")));
}

TEST(Adapters, KeepTheCutsThatTheyHave) {
  ir::Coordinates place;
  place.degree[static_cast<size_t>(ir::Axis::tp)] = 2;
  auto parameters = two_maps();
  parameters[1].cuts = {{0, ir::Axis::tp, 1}};
  parameters[2].cuts = {{1, ir::Axis::tp, 1}};
  parameters[1].replica_group = parameters[2].replica_group = "dense";
  const model::RankText text = adapted(kTwoMaps, parameters, "q, o", place);
  EXPECT_TRUE(named(text, "q.lora_A.weight").cuts.empty());
  EXPECT_EQ(named(text, "q.lora_A.weight").replica_group, "stage");
  EXPECT_EQ(named(text, "q.lora_B.weight").cuts.size(), 1u);
  EXPECT_EQ(named(text, "q.lora_B.weight").replica_group, "dense");
  EXPECT_EQ(named(text, "o.lora_A.weight").cuts[0].dim, 1);
  EXPECT_EQ(named(text, "o.lora_A.weight").replica_group, "dense");
  EXPECT_EQ(named(text, "o.lora_B.weight").replica_group, "stage");
  // The whole width, not the rank's, is what the start goes by.
  EXPECT_DOUBLE_EQ(named(text, "o.lora_A.weight").deviation, 1 / std::sqrt(3.0 * 12));
}

TEST(Adapters, TwoReleasedMatricesOfExpertsHaveAnAdapterEach) {
  const std::string experts = R"(
listing 0
  weight      x        f32[4, 8]
  weight      offsets  i32[4]
  weight      e.gate_up.weight  f32[3, 10, 8]
listing 0, F
  layer 0
    0.u = grouped_linear x, e.gate_up.weight, offsets
)";
  const model::RankText text =
      adapted(experts,
              {of("e.gate_up.weight", Parameter::Part::experts,
                  {{"e.{}.gate.weight", 0, 5}, {"e.{}.up.weight", 5, 5}}, {{1, ir::Axis::etp, 2}}, "edp", 3)},
              "experts");
  EXPECT_EQ(kinds_of(text.listing, ir::Phase::F),
            (std::vector<std::string>{"grouped_linear", "grouped_linear", "scale", "split", "grouped_linear",
                                      "grouped_linear", "concat", "add"}));
  const Parameter &down = named(text, "e.gate_up.lora_A.weight"), &up = named(text, "e.up.lora_B.weight");
  EXPECT_EQ(ir::text_of(text.listing, text.listing.value(down.value)), "f32[3, 4, 8]");
  EXPECT_EQ(down.released[1].name, "e.{}.up.lora_A.weight");
  EXPECT_EQ(down.released[1].row, 2);
  EXPECT_EQ(down.replica_group, "expert");
  EXPECT_EQ(ir::text_of(text.listing, text.listing.value(up.value)), "f32[3, 5, 2]");
  EXPECT_EQ(up.cuts[0].parts, 1);
  EXPECT_EQ(up.replica_group, "edp");
  EXPECT_THROW(adapted(experts,
                       {of("e.gate_up.weight", Parameter::Part::experts,
                           {{"e.{}.gate.weight", 0, 5}, {"e.{}.up.weight", 5, 5}}, {}, "edp", 3)},
                       "gate"),
               ConfigError);
}

TEST(Adapters, ATargetThatIsNotThereIsRefused) {
  for (const char* targets : {"v", "", "attention,,q", "mlp"}) {
    EXPECT_THROW(adapted(kTwoMaps, two_maps(), targets), ConfigError) << targets;
  }
}

}  // namespace
}  // namespace heddle::test
