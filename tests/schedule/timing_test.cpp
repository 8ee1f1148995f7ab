// Times of whole schedules against what the papers print and against the formulas.
#include "heddle/schedule/timing.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "heddle/base/error.h"
#include "heddle/schedule/generators.h"
#include "heddle/schedule/text.h"
#include "tests/schedule/zero_bubble_rates.h"

namespace heddle::schedule {
namespace {

Timing time(const Schedule& s, const StageTimes& rank = {}, double pair = 1, double hop = 0) {
  return timing_of(s, even_times(s.placement, rank, pair, hop));
}

double four_decimals(double rate) { return std::round(rate * 1e4) / 1e4; }

TEST(Timing, RatesOfTheZeroBubblePaper) {
  for (const ZeroBubbleRow& row : kZeroBubbleRows) {
    GeneratorOptions options{.ranks = row.ranks, .microbatches = row.microbatches};
    const StageTimes rank{row.forward_ms, row.input_grad_ms, row.weight_grad_ms};
    const auto rate = [&](const char* name) {
      return four_decimals(time(make_schedule(name, options), rank, 1, row.hop_ms).staggered_rate());
    };
    EXPECT_EQ(rate("1f1b"), row.rate_1f1b) << row.model;
    EXPECT_EQ(rate("zb_h1"), row.rate_zb_h1) << row.model;
    EXPECT_EQ(rate("zb_h2"), row.rate_zb_h2) << row.model;
    // For interleaved the paper charges P hops fewer than lie on the path of the first and last microbatch.
    options.chunks = row.interleaved_chunks;
    const Timing t = time(make_schedule("interleaved", options), rank, 1, row.hop_ms);
    const double span = t.span - row.ranks * row.hop_ms;
    EXPECT_EQ(four_decimals((span - t.work) / span), row.rate_interleaved) << row.model;
  }
}

// Bubbles for P = 2 … 16 and several m, with unequal times that keep the formulas exact.
TEST(Timing, FormulasOfTheBubbles) {
  const StageTimes cases[] = {{1, 1, 1}, {2, 2, 1}, {3, 4, 2}};
  for (int P = 2; P <= 16; ++P) {
    for (const int m : {2 * P - 1, 2 * P, 3 * P + 1, 4 * P}) {
      for (const StageTimes& of : cases) {
        const double F = of.forward, I = of.input_grad, W = of.weight_grad, B = I + W;
        const auto timing = [&](const char* name, int chunks = 0) {
          const Timing t = time(make_schedule(name, {.ranks = P, .microbatches = m, .chunks = chunks}), of);
          EXPECT_NEAR(t.work, m * (F + B), 1e-9);
          EXPECT_NEAR(t.useful, t.work, 1e-9);
          return t;
        };
        const std::string where = fmt::format("P {} m {} F {} I {} W {}", P, m, F, I, W);
        EXPECT_NEAR(timing("gpipe").synchronous(), (P - 1) * (F + B), 1e-9) << where;
        EXPECT_NEAR(timing("1f1b").synchronous(), (P - 1) * (F + B), 1e-9) << where;
        EXPECT_NEAR(timing("zb_h1").synchronous(), (P - 1) * (F + I - W), 1e-9) << where;
        const Timing h2 = timing("zb_h2");
        EXPECT_NEAR(h2.staggered(), (P - 1) * std::max(0.0, F + I - 2 * W), 1e-9) << where;
        EXPECT_GE(h2.synchronous(), (P - 1) * F - 1e-9) << where;
        for (const int v : {2, 3, 4}) {
          if (m % P != 0) continue;
          EXPECT_NEAR(timing("interleaved", v).synchronous(), (P - 1) * (F + B) / v, 1e-9) << where;
        }
      }
    }
  }
}

}  // namespace
}  // namespace heddle::schedule
