// Inputs given for a step, checked against those that the program takes: missing, unknown and wrong inputs,
// defaults, and standing inputs.
#include "heddle/device/inputs.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>

#include "heddle/ops/ops.h"

namespace heddle::device {
namespace {

using ir::Default;
using ir::Given;

class InputsTest : public testing::Test {
 protected:
  void SetUp() override {
    program_.microbatches = 2;
    // Two purposes: a training step takes all, evaluation takes ids and homes.
    program_.listings.resize(2);
    for (ir::Listing& listing : program_.listings) {
      listing.add_input({.name = "ids", .dtype = Dtype::i32, .shape = {2, 2}, .given = Given::microbatch});
      listing.add_input({.name = "homes.3",
                         .dtype = Dtype::i32,
                         .shape = {4},
                         .given = Given::standing,
                         .otherwise = Default::in_order()});
    }
    program_.listings[0].add_input({.name = "hyper", .dtype = Dtype::f64, .shape = {2}});
    program_.listings[0].add_input(
        {.name = "limits", .dtype = Dtype::f64, .shape = {2}, .otherwise = Default::of(INFINITY)});
    for (int s = 0; s < 2; ++s) {
      program_.blocks.push_back({.listings = {s}});
      program_.actions[static_cast<size_t>(s)] = {{{s, {0}}}};
      program_.first_listing[static_cast<size_t>(s)] = s;
    }
  }

  static Inputs complete() {
    Inputs inputs(2);
    inputs.set("ids", 0, std::vector<int32_t>{1, 2, 3, 4});
    inputs.set("ids", 1, std::vector<int32_t>{5, 6, 7, 8});
    inputs.set("hyper", std::array{0.5, 0.25});
    return inputs;
  }
  template <class Number>
  static std::vector<Number> read(const RankInputs& inputs, const std::string& name, int microbatch, size_t count,
                                  int listing = 0) {
    ir::Op load;
    load.def = &ops::find("load");
    load.attributes = {{"input", name}};
    const auto* first = reinterpret_cast<const Number*>(inputs.of(listing, load, microbatch));
    return {first, first + count};
  }
  void expect_refused(const Inputs& given, const std::string& word, int listing = 0) {
    RankInputs inputs(program_, 0);
    try {
      inputs.begin(listing, given);
      ADD_FAILURE() << "not refused: " << word;
    } catch (const InternalError& error) {
      EXPECT_NE(std::string(error.what()).find(word), std::string::npos) << error.what();
    }
  }

  ir::StepProgram program_;
};

TEST_F(InputsTest, WhatIsGivenIsLoadedAndTheRestHasItsDefault) {
  RankInputs inputs(program_, 0);
  const Inputs given = complete();
  inputs.begin(0, given);
  EXPECT_EQ(read<int32_t>(inputs, "ids", 1, 4), (std::vector<int32_t>{5, 6, 7, 8}));
  EXPECT_EQ(read<double>(inputs, "hyper", -1, 2), (std::vector<double>{0.5, 0.25}));
  EXPECT_EQ(read<double>(inputs, "hyper", 1, 2), (std::vector<double>{0.5, 0.25})) << "in each microbatch";
  EXPECT_EQ(read<double>(inputs, "limits", -1, 2), (std::vector<double>{INFINITY, INFINITY}));
  EXPECT_EQ(read<int32_t>(inputs, "homes.3", 0, 4), (std::vector<int32_t>{0, 1, 2, 3}));
}

TEST_F(InputsTest, AStandingInputStandsForLaterStepsOfAnyPurpose) {
  RankInputs inputs(program_, 0);
  Inputs given = complete();
  const std::vector<int32_t> homes{3, 2, 1, 0}, others{1, 0, 2, 3};
  given.set("homes.3", homes);
  inputs.begin(0, given);
  Inputs evaluation(2);
  evaluation.set("ids", std::vector<int32_t>{1, 2, 3, 4});
  inputs.begin(1, evaluation);
  EXPECT_EQ(read<int32_t>(inputs, "homes.3", 0, 4, 1), homes);
  given = complete();
  given.set("limits", std::array{1.0, 2.0});
  inputs.begin(0, given);
  EXPECT_EQ(read<int32_t>(inputs, "homes.3", 0, 4), homes);
  given.forget("limits");
  inputs.begin(0, given);
  EXPECT_EQ(read<double>(inputs, "limits", -1, 2)[0], INFINITY) << "an input of a step is of that step alone";
  Inputs standing;
  standing.set("homes.3", others);
  inputs.stand(standing);
  inputs.begin(1, evaluation);
  EXPECT_EQ(read<int32_t>(inputs, "homes.3", 0, 4, 1), others);
  inputs.stand(Inputs());
  inputs.begin(1, evaluation);
  EXPECT_EQ(read<int32_t>(inputs, "homes.3", 0, 4, 1), (std::vector<int32_t>{0, 1, 2, 3}));
  EXPECT_THROW(inputs.stand(complete()), InternalError) << "these are of one step";
}

TEST_F(InputsTest, WrongInputsAreRefusedByName) {
  Inputs given = complete();
  given.forget("hyper");
  expect_refused(given, "'hyper' is not given");
  given = complete();
  given.set("hiper", std::array{1.0, 2.0});
  expect_refused(given, "no input 'hiper'");
  given = complete();
  given.set("hyper", std::array{1.0, 2.0, 3.0});
  expect_refused(given, "'hyper' is given 3 numbers");
  given = complete();
  given.set("hyper", std::array{1.0f, 2.0f});
  expect_refused(given, "'hyper' is given in f32");
  given = complete();
  given.set("hyper", 1, std::array{1.0, 2.0});
  expect_refused(given, "'hyper' is given for microbatch 1");
  given = Inputs(2);
  given.set("ids", 0, std::vector<int32_t>{1, 2, 3, 4});
  given.set("hyper", std::array{1.0, 2.0});
  expect_refused(given, "'ids' is not given for microbatch 1");
  EXPECT_THROW(given.set("ids", 2, std::vector<int32_t>{1, 2, 3, 4}), InternalError) << "of two";
  // An input that another listing of the program takes is nothing unknown.
  RankInputs inputs(program_, 0);
  EXPECT_NO_THROW(inputs.begin(1, complete()));
}

TEST_F(InputsTest, AreReadAsTheyWereGiven) {
  const Inputs given = complete();
  EXPECT_EQ(given.get<int32_t>("ids", 1)[0], 5);
  EXPECT_EQ(given.get<double>("hyper")[1], 0.25);
  EXPECT_TRUE(given.get<double>("limits").empty());
  EXPECT_THROW((void)given.get<float>("hyper"), InternalError);
}

}  // namespace
}  // namespace heddle::device
