// Layout strings: what they hold, how they repeat, what is refused and how.
#include "heddle/plan/layout.h"

#include <gtest/gtest.h>

#include "heddle/base/error.h"
#include "tests/support/tiny_models.h"

namespace heddle::plan {
namespace {

model::ModelConfig model_of(int64_t layers, int64_t depths = 0) {
  model::ModelConfig c = test::small_model();
  c.num_hidden_layers = layers;
  c.first_k_dense_replace = std::min<int64_t>(layers, 1);
  c.num_nextn_predict_layers = depths;
  return c;
}

std::string laid(const std::string& layout, const model::ModelConfig& config, int stages) {
  return text_of(layout_of(layout, config, stages));
}

TEST(Layout, EvenGivesTheFirstStagesOneMore) {
  EXPECT_EQ(laid("even", model_of(6), 4), "Ett|tt|t|tL");
  EXPECT_EQ(laid("even", model_of(2, 1), 4), "Et|t||mL");
  EXPECT_EQ(laid("even", model_of(3, 2), 1), "EtttmmL");
}

TEST(Layout, StringsOfMegatronRepeatAndNest) {
  EXPECT_EQ(laid("Et*3|(tt|)*2mL", model_of(7, 1), 4), "Ettt|tt|tt|mL");
  EXPECT_EQ(laid("E,t|(t|)*4t,L|", model_of(6), 6), "Et|t|t|t|t|tL");
  EXPECT_EQ(laid("E||t((t|)*2)*1|tL", model_of(4), 6), "E||tt|t||tL") << "stages may be empty";
  // DeepSeek-V3 on 16 ranks of two chunks: 61 layers, and MTP apart from the loss.
  EXPECT_EQ(layout_of("Et*3|(tt|)*29m|L", model_of(61, 1), 32).size(), 32u);
  // The other way round too: what is written reads as itself.
  const model::ModelConfig c = model_of(9, 1);
  for (const int stages : {1, 2, 3, 5, 8, 16}) {
    const std::string text = laid("balanced", c, stages);
    EXPECT_EQ(laid(text, c, stages), text);
  }
}

TEST(Layout, PiecesKnowWhereTheyBegin) {
  const std::vector<model::StageShare> pieces = layout_of("Et|tt|m|mL", model_of(3, 2), 4);
  EXPECT_TRUE(pieces[0].embedding && pieces[3].loss && !pieces[1].embedding && !pieces[2].loss);
  EXPECT_EQ(pieces[1].first_layer, 1);
  EXPECT_EQ(pieces[1].layers, 2);
  EXPECT_EQ(pieces[2].first_depth, 1);
  EXPECT_EQ(pieces[3].first_depth, 2);
}

// A head that costs as much as several layers gets a stage that has fewer of them.
TEST(Layout, BalancedSparesTheStageOfTheHead) {
  model::ModelConfig c = model_of(8);
  c.vocab_size = 32000;
  const std::vector<model::StageShare> pieces = layout_of("balanced", c, 4);
  EXPECT_EQ(pieces[3].layers, 0);
  EXPECT_GE(pieces[1].layers, 2);
}

// The head serves every depth, on its own stage: two heads there and a depth elsewhere, not a head in each.
TEST(Layout, BalancedCountsTheHeadsOfDepthsWhereTheyRun) {
  model::ModelConfig c = model_of(4, 1);
  c.vocab_size = 16000;
  EXPECT_EQ(laid("balanced", c, 2), "Ettttm|L");
}

TEST(Layout, RefusesWithThePlace) {
  const auto refused = [](const std::string& layout, int stages, const std::string& says) {
    try {
      layout_of(layout, model_of(4, 1), stages);
      ADD_FAILURE() << layout << " was accepted";
    } catch (const ConfigError& error) {
      EXPECT_NE(std::string(error.what()).find(says), std::string::npos) << error.what();
    }
  };
  refused("Ett|xttmL", 2, "character 5: found 'x'");
  refused("Ett|(tt", 2, "a '(' without its ')'");
  refused("Ett)|tt", 2, "a ')' without its '('");
  refused("Ett|tt*mL", 2, "'*' needs a count");
  refused("Et*99999999999", 1, "too many layers");
  refused("((((((((((t))))))))))", 1, "more than 8 parentheses");
  refused("Ett|ttmL", 3, "parallel.layout has 2 stages, the pipeline 3");
  refused("Ett|tmL", 2, "another order or number than the model");
  refused("Ett|mttL", 2, "another order or number than the model");
}

}  // namespace
}  // namespace heddle::plan
