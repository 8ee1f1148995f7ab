// Times of whole schedules against what the papers print and against the formulas.
#include "heddle/schedule/timing.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "heddle/base/error.h"
#include "heddle/schedule/generators/generators.h"
#include "heddle/schedule/text.h"
#include "tests/schedule/zero_bubble_rates.h"

namespace heddle::schedule {
namespace {

Timing time(const Schedule& s, const StageTimes& rank = {}, double pair_timing = 1, double hop = 0) {
  return timing_of(s, even_times(s.placement, rank, pair_timing, hop));
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

// Which schedule wins when experts exchange rows: P 8, m 32, F = I = W = 1, a pair lasts 3.1, all-to-all a.
TEST(Timing, EfficiencyWithExchanges) {
  const struct {
    const char* name;
    int chunks;
    double quarter, half, whole;
  } rows[] = {
      {"1f1b", 0, .703, .615, .492},
      {"interleaved_fused", 2, .848, .819, .766},
      {"interleaved_fused", 4, .890, .858, .801},
      {"zb_v", 0, .825, .720, .575},
      {"dual_pipe_v", 0, .866, .828, .761},
      {"mindspeed_dual_pipe_v", 0, .815, .781, .721},
  };
  for (const auto& row : rows) {
    const Schedule s = make_schedule(row.name, {.ranks = 8, .microbatches = 32, .chunks = row.chunks});
    const auto efficiency = [&](double a) { return time(s, {1, 1, 1, a}, 3.1 / 3).efficiency(); };
    EXPECT_NEAR(efficiency(.25), row.quarter, 5e-4) << row.name;
    EXPECT_NEAR(efficiency(.5), row.half, 5e-4) << row.name;
    EXPECT_NEAR(efficiency(1), row.whole, 5e-4) << row.name;
  }
}

// Two ranks by hand: hops, an exposed exchange, a pair that hides it.
TEST(Timing, EveryTermByHand) {
  const Schedule s = read_schedule(
      "x ranks=2 stages=2 microbatches=2\n"
      "r0 F0 F1 B0 B1\n"
      "r1 F0 [F1|B0] I1 W1\n");
  const Times times{{{1, 2, 3, .5}, {4, 5, 6, .25}}, .8, .125};
  const Timing t = timing_of(s, times);
  const auto starts_and_ends = [&](size_t r) {
    std::vector<double> all;
    for (const Interval& i : t.of[r]) all.insert(all.end(), {i.start, i.end});
    return all;
  };
  const double f1 = 1.625 + 4.25, pair_timing = f1 + .8 * 15, last = pair_timing + 5.25;
  EXPECT_EQ(starts_and_ends(1),
            (std::vector<double>{1.625, f1, f1, pair_timing, pair_timing, last, last, last + 6}));
  EXPECT_EQ(starts_and_ends(0), (std::vector<double>{0, 1.5, 1.5, 3, pair_timing + .125, pair_timing + 5.625,
                                                     pair_timing + 5.625, pair_timing + 11.125}));
  EXPECT_EQ(t.makespan, last + 6);
  EXPECT_EQ(t.span, pair_timing + 11.125) << "rank 0 begins earlier";
  EXPECT_EQ(t.busy, (std::vector<double>{14, 4.25 + 12 + 5.25 + 6}));
  EXPECT_EQ(t.work, t.busy[1]);
  EXPECT_EQ(t.useful, 30);
}

TEST(Timing, RefusesTimesThatCannotBe) {
  const Schedule s = make_schedule("1f1b", {.ranks = 2, .microbatches = 2});
  EXPECT_THROW(timing_of(s, {{{1, 1, 1}}, 1, 0}), ConfigError) << "of one stage only";
  EXPECT_THROW(time(s, {-1, 1, 1}), ConfigError);
  EXPECT_THROW(time(s, {1, NAN, 1}), ConfigError);
  EXPECT_THROW(time(s, {1, 1, 1}, 1, INFINITY), ConfigError);
}

}  // namespace
}  // namespace heddle::schedule
