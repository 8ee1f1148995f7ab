// Drawing the next token: which tokens may come, how often each does, and the same draw for the same number.
#include "heddle/session/text/sampling.h"

#include <gtest/gtest.h>

#include <cmath>

#include "heddle/base/error.h"

namespace heddle::session {
namespace {

// Probabilities 0.1, 0.4, 0.05, 0.3, 0.15 at temperature 1.
const std::vector<double> kShares{0.1, 0.4, 0.05, 0.3, 0.15};
std::vector<float> logits() {
  std::vector<float> logits;
  for (const double share : kShares) logits.push_back(static_cast<float>(std::log(share)));
  return logits;
}

std::vector<data::TokenId> ids_of(const std::vector<Candidate>& found) {
  std::vector<data::TokenId> ids;
  for (const Candidate& c : found) ids.push_back(c.id);
  return ids;
}

// How often each id comes, of numbers that cover [0, 1) evenly.
std::vector<double> shares(const Sampling& how) {
  constexpr int kDraws = 100000;
  std::vector<double> counts(kShares.size());
  const std::vector<Candidate> found = candidates(logits(), std::ssize(kShares), how);
  for (int i = 0; i < kDraws; ++i) counts[static_cast<size_t>(draw(found, (i + 0.5) / kDraws))] += 1.0 / kDraws;
  return counts;
}

void expect_shares(const Sampling& how, std::vector<double> expected) {
  double sum = 0;
  for (const double share : expected) sum += share;
  const std::vector<double> found = shares(how);
  for (size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(found[i], expected[i] / sum, 2e-5) << "id " << i;
}

TEST(Sampling, AtTemperatureZeroTheLikeliest) {
  expect_shares({.temperature = 0}, {0, 1, 0, 0, 0});
  EXPECT_EQ(ids_of(candidates(std::vector<float>{2, 7, 7}, 3, {})), (std::vector{1}));
}

TEST(Sampling, DrawsFromTheDistribution) {
  expect_shares({.temperature = 1}, kShares);
  std::vector<double> squared;
  for (const double share : kShares) squared.push_back(share * share);
  expect_shares({.temperature = 0.5}, squared);
}

TEST(Sampling, TopKKeepsTheLikeliest) {
  expect_shares({.temperature = 1, .top_k = 2}, {0, 0.4, 0, 0.3, 0});
  expect_shares({.temperature = 1, .top_k = 1}, {0, 1, 0, 0, 0});
  expect_shares({.temperature = 1, .top_k = 5}, kShares);
  expect_shares({.temperature = 1, .top_k = 99}, kShares);
  // Of two alike the smaller id.
  EXPECT_EQ(ids_of(candidates(std::vector<float>{1, 1, 1}, 3, {.temperature = 1, .top_k = 2})),
            (std::vector{0, 1}));
}

TEST(Sampling, TopPKeepsTheFewestThatSumToIt) {
  expect_shares({.temperature = 1, .top_p = 0.39}, {0, 1, 0, 0, 0});
  expect_shares({.temperature = 1, .top_p = 0.41}, {0, 0.4, 0, 0.3, 0});
  expect_shares({.temperature = 1, .top_p = 0.69}, {0, 0.4, 0, 0.3, 0});
  expect_shares({.temperature = 1, .top_p = 0.8}, {0, 0.4, 0, 0.3, 0.15});
  expect_shares({.temperature = 1, .top_p = 0.94}, {0.1, 0.4, 0, 0.3, 0.15});
  expect_shares({.temperature = 1, .top_p = 0.96}, kShares);
  expect_shares({.temperature = 1, .top_p = 1e-9}, {0, 1, 0, 0, 0});
}

TEST(Sampling, TopPIsOfWhatTopKLeaves) {
  // Of 0.4, 0.3 and 0.15 the first two are 0.82 of all three.
  expect_shares({.temperature = 1, .top_k = 3, .top_p = 0.8}, {0, 0.4, 0, 0.3, 0});
  expect_shares({.temperature = 1, .top_k = 3, .top_p = 0.83}, {0, 0.4, 0, 0.3, 0.15});
}

TEST(Sampling, IdsBeyondTheTokenizerNeverCome) {
  for (const Sampling& how : {Sampling{}, Sampling{.temperature = 1}, Sampling{.temperature = 1, .top_k = 1},
                              Sampling{.temperature = 1, .top_p = 0.1}}) {
    for (const data::TokenId id : ids_of(candidates(std::vector<float>{1, 2, 9, 9}, 2, how))) EXPECT_LT(id, 2);
  }
  EXPECT_THROW(candidates(std::vector<float>{}, 4, {}), InternalError);
}

}  // namespace
}  // namespace heddle::session
