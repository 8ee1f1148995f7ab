// Wherever a model is cut into pipeline stages, bf16 rounds the same numbers: every cut of a small model with depth
// predictions against one rank, bit for bit, in the weights after some steps, an evaluation's loss and logits.
#include <gtest/gtest.h>

#include <cmath>

#include "heddle/schedule/generators/generators.h"
#include "tests/parity/exact_run.h"

namespace heddle::parity {
namespace {

/// "|" put into the letters at each of the places.
std::string cut(std::string letters, const std::vector<size_t>& places) {
  for (size_t i = places.size(); i-- > 0;) letters.insert(places[i], "|");
  return letters;
}

std::string letters_of(const ExactSetting& setting) {
  return "E" + std::string(static_cast<size_t>(exact_model(setting).num_hidden_layers), 't') +
         std::string(static_cast<size_t>(setting.depths), 'm') + "L";
}

class Cuts {
 public:
  explicit Cuts(ExactSetting setting) : setting_(std::move(setting)), expected_(train_on_threads({}, setting_)) {
    for (const auto& [name, values] : expected_) {
      for (const double v : values) EXPECT_TRUE(std::isfinite(v)) << name;
    }
    EXPECT_NE(expected_.at("evaluate")[0], 0);
  }

  void expect_same(const plan::Degrees& mesh, const std::string& layout, const std::string& schedule = "1f1b") {
    ExactSetting with = setting_;
    with.layout = layout;
    with.schedule = schedule;
    const auto found = train_on_threads(mesh, with);
    ASSERT_EQ(found.size(), expected_.size());
    for (const auto& [name, values] : expected_) {
      EXPECT_EQ(found.at(name), values)
          << name << ", " << layout << ", " << schedule << ", depths " << setting_.depths << " tied "
          << setting_.tied << " on " << setting_.backend;
    }
  }
  void every_cut_in_two() {
    const std::string letters = letters_of(setting_);
    for (size_t at = 0; at <= letters.size(); ++at) expect_same({.pp = 2}, cut(letters, {at}));
  }
  void every_cut_in_three() {
    const std::string letters = letters_of(setting_);
    for (size_t a = 0; a <= letters.size(); ++a) {
      for (size_t b = a; b <= letters.size(); ++b) expect_same({.pp = 3}, cut(letters, {a, b}));
    }
  }

 private:
  ExactSetting setting_;
  std::map<std::string, std::vector<double>> expected_;
};

/// The head alone on the last of the stages, the rest spread over those before.
std::string head_apart(const ExactSetting& setting, int stages) {
  std::string letters = letters_of(setting);
  letters.pop_back();
  std::vector<size_t> places;
  const auto before = static_cast<size_t>(stages - 1);
  for (size_t s = 1; s <= before; ++s) places.push_back((s * letters.size() + before - 1) / before);
  return cut(letters, places) + "L";
}

ExactSetting bf16(const std::string& backend, bool exact, int depths, bool tied = false) {
  return {.dtype = Dtype::bf16, .backend = backend, .exact = exact, .depths = depths, .tied = tied, .steps = 3};
}

TEST(Cuts, OneDepth) {
  Cuts(bf16("reference", false, 1)).every_cut_in_two();
  Cuts(bf16("reference", true, 1)).every_cut_in_two();
}
TEST(Cuts, OneDepthOnTheHost) { Cuts(bf16("host", false, 1)).every_cut_in_two(); }
TEST(Cuts, TwoDepthsInThreeStages) {
  ExactSetting setting = bf16("host", true, 2);
  setting.steps = 1;
  Cuts(setting).every_cut_in_three();
}
TEST(Cuts, TiedEmbeddings) {
  Cuts(bf16("reference", false, 0, true)).every_cut_in_two();
  Cuts(bf16("host", true, 2, true)).every_cut_in_two();
}
// Three uses of a weight and more on several ranks, added up in one rank's order.
TEST(Cuts, WeightsWithManyUses) {
  Cuts(bf16("reference", false, 1, true)).every_cut_in_two();
  Cuts(bf16("host", false, 2, true)).every_cut_in_two();
  ExactSetting two = bf16("host", false, 2);
  two.steps = 1;
  Cuts(two).every_cut_in_three();
}
// Gradients that come from another rank and from another chunk of the same one; DualPipe's two copies need exact
// sums.
TEST(Cuts, WithTheHeadApartInEverySchedule) {
  const ExactSetting plain = bf16("reference", false, 1), exact = bf16("reference", true, 1);
  Cuts in_order(plain), in_any(exact);
  for (const std::string& name : schedule::generator_names()) {
    ExactSetting with = plain;
    with.schedule = name;
    const plan::Degrees mesh{.pp = 2};
    const schedule::Placement placement = plan::schedule_of(exact_plan(mesh, with)).placement;
    (placement.routes > 1 ? in_any : in_order).expect_same(mesh, head_apart(plain, placement.stages), name);
  }
}

}  // namespace
}  // namespace heddle::parity
