// The generators of split-backward and two-way schedules: golden tables, the published rates, formulas of bubbles
// and peaks from arXiv 2401.10241, 2405.15362 and deepseek-ai/DualPipe.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "heddle/base/error.h"
#include "heddle/schedule/generators/dual_pipe.h"
#include "heddle/schedule/generators/dual_pipe_v.h"
#include "heddle/schedule/generators/v_pattern.h"
#include "heddle/schedule/generators/zb_v.h"
#include "heddle/schedule/generators/zero_bubble.h"
#include "heddle/schedule/text.h"
#include "heddle/schedule/timing.h"
#include "tests/schedule/zero_bubble_rates.h"

using namespace heddle;
using namespace heddle::schedule;

namespace {

std::string picture(const Schedule& schedule) {
  std::string text;
  for (int r = 0; r < schedule.placement.ranks; ++r) text += rank_text(schedule, r) + "\n";
  return text;
}

/// Each (stage, microbatch) has one F and one of {B} or {I, W}; W in order; and it can run to its end.
void expect_whole(const Schedule& schedule) {
  const Links links = links_of(schedule);
  EXPECT_EQ(running_order(schedule, links).size(), links.at.size());
  const Numbering number(schedule);
  const auto stages = static_cast<int>(schedule.placement.rank_of.size());
  for (int s = 0; s < stages; ++s) {
    const auto [low, high] = schedule.placement.microbatches_of(s, schedule.microbatches);
    int last = -1;
    for (int m = low; m < high; ++m) {
      for (const Kind kind : {Kind::F, Kind::I, Kind::W})
        ASSERT_GE(links.producer[number(kind, s, m)], 0) << schedule.name << " stage " << s << " microbatch " << m;
      ASSERT_GE(links.producer[number(Kind::W, s, m)], last);
      last = links.producer[number(Kind::W, s, m)];
    }
  }
}

/// Peak of each rank from its order, in microbatches of its layers. A fused pair needs room for both halves.
std::vector<double> peaks(const Schedule& schedule, double kept_for_w = 1) {
  std::vector<double> found;
  for (const auto& order : schedule.order) {
    double held = 0, most = 0;
    for (const Action& action : order) {
      for (const Compute& c : parts_of(action)) held += c.kind == Kind::F;
      most = std::max(most, held);
      for (const Compute& c : parts_of(action)) {
        if (c.kind == Kind::I || c.kind == Kind::B) held -= 1 - kept_for_w;
        if (c.kind == Kind::W || c.kind == Kind::B) held -= kept_for_w;
      }
    }
    const auto chunks = static_cast<double>(schedule.placement.rank_of.size()) / schedule.placement.ranks /
                        schedule.placement.routes;
    found.push_back(most / chunks);
  }
  return found;
}
double peak(const Schedule& schedule, double kept_for_w = 1) {
  const std::vector<double> all = peaks(schedule, kept_for_w);
  return *std::max_element(all.begin(), all.end());
}

Timing timed(const Schedule& schedule, StageTimes rank = {}, double pair = 1, double hop = 0) {
  return timing_of(schedule, even_times(schedule.placement, rank, pair, hop));
}

TEST(ZeroBubble, published_rates) {
  for (const ZeroBubbleRow& row : kZeroBubbleRows) {
    const StageTimes times{row.forward_ms, row.input_grad_ms, row.weight_grad_ms};
    const ZeroBubbleOptions options{row.ranks, row.microbatches, {times}, row.hop_ms};
    const Schedule one = zb_1p(options), two = zb_2p(options);
    expect_whole(one);
    expect_whole(two);
    EXPECT_NEAR(timed(one, times, 1, row.hop_ms).staggered_rate(), row.rate_zb_1p, 5e-5) << row.model;
    EXPECT_NEAR(timed(two, times, 1, row.hop_ms).staggered_rate(), row.rate_zb_2p, 5e-5) << row.model;
    EXPECT_LE(peak(one, options.kept_for_w), row.ranks + 1e-9) << row.model;
    EXPECT_LE(peak(two, options.kept_for_w), 2 * row.ranks + 1e-9) << row.model;
  }
}

TEST(ZeroBubble, any_size_and_cap) {
  for (int p = 1; p <= 8; ++p) {
    for (const int m : {1, 2, p, 3 * p}) {
      for (const double cap : {double(p), 1.5 * p, 3.0 * p}) {
        for (const double kept : {0.0, .5, 1.0}) {
          const ZeroBubbleOptions options{p, m, {{1, 1.2, .7}}, .1, cap, kept};
          const Schedule s = zero_bubble(options);
          expect_whole(s);
          EXPECT_LE(peak(s, kept), cap + 1e-9) << p << " " << m << " " << cap << " " << kept;
        }
      }
    }
  }
  EXPECT_THROW(zero_bubble({4, 8, {{}}, 0, .5}), ConfigError);
  EXPECT_THROW(zero_bubble({4, 8, {{}, {}}, 0, 4}), ConfigError);
  EXPECT_THROW(zero_bubble({4, 8, {{-1, 1, 1}}, 0, 4}), ConfigError);
  EXPECT_THROW(zero_bubble({4, 8, {{1, 1, NAN}}, 0, 4}), ConfigError);
  EXPECT_THROW(zero_bubble({0, 8, {{}}, 0, 4}), ConfigError);
}

TEST(ZbV, formulas) {
  for (int p = 1; p <= 16; ++p) {
    for (const int m : {1, 2, p, 2 * p - 1, 2 * p, 3 * p + 1, 4 * p}) {
      const Schedule s = zb_v(p, m);
      expect_whole(s);
      EXPECT_LE(peak(s), p);
      if (m < 2 * p - 1) continue;
      EXPECT_EQ(peaks(s), std::vector<double>(p, p)) << p << " " << m;
      EXPECT_DOUBLE_EQ(timed(s).staggered(), 0) << p << " " << m;
      EXPECT_DOUBLE_EQ(timed(s).synchronous(), (p - 1) / 2.0) << p << " " << m;
    }
  }
}

TEST(VPattern, bubbles_and_peaks) {
  const std::map<int, std::pair<double, double>> published{{4, {2.5, 5.5}}, {8, {8.5, 13.5}}, {16, {20.5, 29.5}}};
  for (int p = 1; p <= 17; ++p) {
    for (const int m : {1, 2, p, 2 * p, 4 * p}) {
      const Schedule half = v_half(p, m), min = v_min(p, m);
      expect_whole(half);
      expect_whole(min);
      EXPECT_LE(peak(half), (p + 2) / 2) << p << " " << m;
      EXPECT_LE(peak(min), (p + 4) / 3) << p << " " << m;
      if (m < 4 * p) continue;
      EXPECT_EQ(peak(half), (p + 2) / 2) << p << " " << m;
      EXPECT_EQ(peak(min), (p + 4) / 3) << p << " " << m;
      if (!published.contains(p)) continue;
      EXPECT_DOUBLE_EQ(timed(half).synchronous(), published.at(p).first) << p << " " << m;
      EXPECT_DOUBLE_EQ(timed(min).synchronous(), published.at(p).second) << p << " " << m;
    }
  }
}

TEST(DualPipeV, golden) {
  EXPECT_EQ(picture(dual_pipe_v(2, 5)),
            "r0 F0.0 F0.1 F0.2 F1.0 I1.0 W1.0 F1.1 [F0.3|B1.1] [F1.2|B0.0] [F0.4|B1.2] [F1.3|B0.1] B1.3 "
            "[F1.4|B0.2] B1.4 I0.3 W0.3 I0.4 W0.4\n"
            "r1 F0.0 F1.0 F0.1 F1.1 F0.2 B1.0 [F1.2|B0.0] [F0.3|B1.1] [F1.3|B0.1] [F0.4|B1.2] [F1.4|B0.2] B1.3 "
            "B0.3 I1.4 I0.4 W1.4 W0.4\n");
}

TEST(DualPipeV, formulas) {
  // b = i + w; a pair lasts f + b here, or 1.1 times that.
  for (const StageTimes& t : {StageTimes{2, 2, 2}, StageTimes{2, 2, 1}, StageTimes{3, 3, 2}}) {
    for (const double pair : {1.0, 1.1}) {
      for (int p = 2; p <= 16; ++p) {
        for (const int m : {2 * p, 2 * p + 1, 3 * p, 5 * p}) {
          const double f = t.forward / 2, b = (t.input_grad + t.weight_grad) / 2, w = t.weight_grad / 2;
          const double fb = pair * (f + b);
          const Schedule v = dual_pipe_v(p, m), mindspeed = mindspeed_dual_pipe_v(p, m);
          expect_whole(v);
          expect_whole(mindspeed);
          EXPECT_EQ(peak(v), p + .5);
          EXPECT_EQ(peak(mindspeed), p + .5);
          EXPECT_NEAR(timed(v, t, pair).synchronous(), (p - 1) * (fb + b - 3 * w), 1e-9)
              << p << " " << m << " " << pair;
          EXPECT_NEAR(timed(mindspeed, t, pair).synchronous(), (p - 1) * (fb + b - w), 1e-9)
              << p << " " << m << " " << pair;
        }
      }
    }
  }
}

TEST(DualPipeV, small) {
  for (int p = 1; p <= 9; ++p) {
    for (int m = 1; m < 2 * p; ++m) {
      for (const Schedule& s : {dual_pipe_v(p, m), mindspeed_dual_pipe_v(p, m)}) {
        expect_whole(s);
        EXPECT_LE(peak(s), p + .5);
      }
    }
  }
}

TEST(DualPipe, formulas) {
  for (int p = 2; p <= 16; p += 2) {
    for (const int m : {2 * p, 2 * p + 2, 4 * p}) {
      const Schedule s = dual_pipe(p, m);
      expect_whole(s);
      EXPECT_EQ(peaks(s), std::vector<double>(p, p + 1));
      EXPECT_NEAR(timed(s).synchronous(), (p / 2 - 1) * (3 + 2 - 3), 1e-9) << p << " " << m;
    }
  }
  for (const int ranks : {-1, 0, 1 << 20}) {
    EXPECT_THROW(dual_pipe(ranks, 4), ConfigError);
    EXPECT_THROW(dual_pipe_v(ranks, 4), ConfigError);
    EXPECT_THROW(zb_v(ranks, 4), ConfigError);
    EXPECT_THROW(v_min(ranks, 4), ConfigError);
  }
  EXPECT_THROW(v_half(2, 0), ConfigError);
  EXPECT_THROW(dual_pipe(3, 6), ConfigError);
  EXPECT_THROW(dual_pipe(4, 6), ConfigError);
  EXPECT_THROW(dual_pipe(4, 9), ConfigError);
}

TEST(SplitBackward, efficiency_with_exposed_exchanges) {
  // P = 8, m = 32, F = I = W = 1, an all-to-all of a in F and I; a pair of whole stages lasts 3.1.
  const std::map<double, std::array<double, 3>> table{
      {.25, {.825, .866, .815}}, {.5, {.720, .828, .781}}, {1, {.575, .761, .721}}};
  for (const auto& [a, expected] : table) {
    const std::array<Schedule, 3> schedules{zb_v(8, 32), dual_pipe_v(8, 32), mindspeed_dual_pipe_v(8, 32)};
    for (size_t i = 0; i < 3; ++i)
      EXPECT_NEAR(timed(schedules[i], {1, 1, 1, a}, 3.1 / 3).efficiency(), expected[i], 5e-4) << a << " " << i;
  }
}

}  // namespace
