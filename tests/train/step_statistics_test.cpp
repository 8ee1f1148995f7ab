// Statistics are known by what they are: every one of a program is in its table, and each of a step says what the
// whole job's is.
#include <gtest/gtest.h>

#include <set>

#include "heddle/model/loss_scale.h"
#include "heddle/train/step/rank_figures.h"
#include "heddle/train/step/result.h"
#include "heddle/train/step/statistics.h"
#include "tests/support/tiny_models.h"

namespace heddle::train {
namespace {

constexpr int kStages = 2;

// Two layers with both losses of the router and two depths, each on the pipeline rank that has it.
plan::Lowered lowered(double depth_weight = 0.6) {
  model::ModelConfig model = test::tiny_balanced_model();
  model.num_nextn_predict_layers = 2;
  model.mtp_loss_weight = depth_weight;
  plan::Plan plan;
  plan.mesh.pp = kStages;
  plan.microbatches = 2;
  plan.sequence_length = 8;
  plan.evaluates = plan.predicts = true;
  return plan::lower(model, plan);
}

TEST(Statistics, OfAProgramAreAllInItsTable) {
  const plan::Lowered all = lowered();
  ASSERT_EQ(all.statistics.size(), all.program.listings.size());
  size_t found = 0;
  for (size_t s = 0; s < all.program.listings.size(); ++s) {
    const ir::Listing& listing = all.program.listings[s];
    std::set<ir::ValueId> known;
    for (const model::Statistic& statistic : all.statistics[s]) {
      EXPECT_EQ(listing.value(statistic.value).name, model::name_of(statistic));
      known.insert(statistic.value);
    }
    for (ir::ValueId id = 0; id < std::ssize(listing.values); ++id) {
      EXPECT_EQ(listing.value(id).role == ir::Role::statistic, known.contains(id)) << listing.value(id).name;
    }
    found += known.size();
  }
  // Four layers with experts and their two losses, three losses of tokens: once in training, once in evaluation;
  // a norm on each rank of the pipeline, and the logits.
  EXPECT_EQ(found, size_t{2 * (4 * 3 + 3) + kStages + 1});
}

// Each number of the row is its place in it, from 1.
StepResult counted(const plan::Lowered& of, int ranks) {
  const StepStatistics statistics(of, 0, kStages);
  size_t size = 1 + 3 + 2 * 4 + 4 * 8;
  std::vector<double> row;
  while (row.size() < size) row.push_back(static_cast<double>(row.size() + 1));
  StepResult result;
  result.statistics = statistics.read(row, std::array{0.5, 0.25, 0.125, 3.0, 6.0}, ranks);
  size_t taken = 0;
  for (const Reading& reading : result.statistics) taken += reading.values.size();
  EXPECT_EQ(taken, size) << "what means the same has one place";
  return result;
}

double first_of(const StepResult& result, const model::StatisticKind& kind) {
  for (const Reading& reading : result.statistics) {
    if (reading.kind == &kind) return reading.values.at(0);
  }
  ADD_FAILURE() << kind.name;
  return 0;
}

TEST(Statistics, AreMeansOfTheWholeJob) {
  const plan::Lowered of = lowered();
  const StepStatistics statistics(of, 0, kStages);
  const StepResult plain = counted(of, 1), four = counted(of, 4);
  EXPECT_EQ(first_of(four, model::kGradientNorm), first_of(plain, model::kGradientNorm) / 4);
  EXPECT_EQ(first_of(four, model::kLoad), first_of(plain, model::kLoad));
  // The loads of layer 0 come first in its text, then its losses.
  EXPECT_EQ(plain.loads().at(0).rows_E[0], 1);
  EXPECT_EQ(first_of(plain, model::kSequenceAuxLoss), 9 * 0.25);
  EXPECT_EQ(first_of(plain, model::kZLoss), 10 * 0.125);
  ASSERT_EQ(plain.loads().size(), 4u);
  for (int l = 0; l < 4; ++l) {
    EXPECT_EQ(plain.loads()[static_cast<size_t>(l)].layer, l);
    EXPECT_EQ(plain.loads()[static_cast<size_t>(l)].rows_E.size(), 8u);
  }
  EXPECT_EQ(plain.loads()[0].rows_E[7], 8);
  EXPECT_EQ(plain.imbalance(), 8 * 8 / 36.0) << "of layer 0: 1 … 8 rows";
}

// Both factors have the weight in them, 0.6 ÷ 2; what is told has not.
TEST(Statistics, OfDepthsAreBeforeTheirWeight) {
  const StepResult weighted = counted(lowered(), 1), off = counted(lowered(0), 1);
  ASSERT_EQ(weighted.depth_losses().size(), 2u);
  const double first = weighted.depth_losses()[0] * 0.3 / 3, second = weighted.depth_losses()[1] * 0.3 / 6;
  EXPECT_NEAR(first, std::round(first), 1e-12) << "a place in the row";
  EXPECT_NEAR(second, std::round(second), 1e-12);
  EXPECT_LT(first, second);
  EXPECT_EQ(off.depth_losses(), (std::vector<double>{0, 0}));
  EXPECT_EQ(weighted.total(model::kDepthLoss), weighted.depth_losses()[0] + weighted.depth_losses()[1]);
}

TEST(RankFigures, TheWorstOfAllRanksCounts) {
  std::vector<double> sum;
  const RankFigures figures[] = {
      {2, 10, 40, 0, {}}, {3, 5, 50, 7, {.backward_s = 1.5, .expert_rows = 8}}, {1, 20, 30, 6, {}}};
  for (int r = 0; r < 3; ++r) {
    std::vector<double> row;
    append(row, figures[r], r, 3);
    sum.resize(row.size(), 0);
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += row[i];
  }
  StepResult result;
  take_figures(result, sum);
  EXPECT_EQ(result.seconds, 3);
  EXPECT_EQ(result.peak_live_bytes, 20);
  EXPECT_EQ(result.reserved_bytes, 50);
  EXPECT_EQ(result.grown_bytes, 7);
  EXPECT_EQ(result.grown_rank, 1);
  ASSERT_EQ(result.work.size(), 3u);
  EXPECT_EQ(result.work[1].backward_s, 1.5);
  EXPECT_EQ(result.work[1].expert_rows, 8);
  EXPECT_EQ(result.work[2].expert_rows, 0);
}

}  // namespace
}  // namespace heddle::train
