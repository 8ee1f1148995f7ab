// What a search reckons with of a schedule: formulas against orders, and figures worked out from orders against
// both.
#include "heddle/schedule/pipeline.h"

#include <gtest/gtest.h>

#include "heddle/base/error.h"
#include "heddle/schedule/validate.h"

namespace heddle::schedule {
namespace {

constexpr StageBytes kKept{0.06, 0.94};

Generator without_formulas(const Generator& generator) {
  Generator bare = generator;
  bare.outline = {};
  return bare;
}

int some_chunks(const Pipeline& p) { return p.chunks() > 0 ? p.chunks() : 2; }

// Formulas leave out what the pauses of warm-up and cool-down come to where F, I and W are far from alike: within 4
// % of the step, and an eighth of the ranks' microbatches of what is held (those that only W keeps are counted
// whole).
TEST(Pipelines, FormulasFollowTheOrders) {
  int with_formulas = 0;
  for (const Pipeline& p : pipelines()) {
    if (p.outline().bubble == nullptr || p.outline().in_flight == nullptr) continue;
    ++with_formulas;
    for (const StageTimes t : {StageTimes{1, 1, 1}, {1, 1.3, 0.7}, {1, 1.6, 0.6}, {1, 1, 0.6}}) {
      for (const int ranks : {4, 8, 16}) {
        const PipelineSize size{ranks, some_chunks(p), 8.0 * ranks};
        ASSERT_EQ(p.misfit(size), "");
        const Schedule s = p.make(size);
        const Timing timing = timing_of(s, even_times(s.placement, t));
        EXPECT_NEAR(timing.synchronous(), p.bubble(size, t), 0.04 * size.microbatches * t.sum())
            << p.name() << " " << ranks;
        const std::vector<Peak> peaks = peaks_of(s, even_bytes(s.placement, kKept));
        for (const int r : {0, ranks / 2})
          EXPECT_NEAR(peaks[static_cast<size_t>(r)].bytes, p.in_flight(size, r), 0.13 * ranks + 1)
              << p.name() << " rank " << r << " of " << ranks;
      }
    }
  }
  EXPECT_EQ(with_formulas, 10);
}

// What is held and what runs outside of pairs follows from the order exactly, the bubble at the times that were
// tried; at others, the longest chain there may be none of those: by at most 1 % of the step here.
TEST(Pipelines, FiguresAreThoseOfTheOrder) {
  for (const Generator& generator : generators()) {
    const Generator bare = without_formulas(generator);
    const Pipeline p(bare);
    for (const int ranks : {2, 4, 7, 16}) {
      for (const int microbatches : {2 * ranks, 6 * ranks}) {
        const PipelineSize size{ranks, some_chunks(p), static_cast<double>(microbatches)};
        if (generator.name == "dual_pipe" && ranks % 2 != 0) {
          EXPECT_NE(p.misfit(size), "") << "dual_pipe on " << ranks << " ranks";
          continue;
        }
        ASSERT_EQ(p.misfit(size), "") << p.name();
        const Schedule s = p.make(size);
        for (const StageTimes t : {StageTimes{1, 1, 1}, {2, 3, 1.4}, {1, 1.2, 0.9}, {1, 1.9, 0.5}}) {
          const double bubble = timing_of(s, even_times(s.placement, t)).synchronous();
          const double tolerance = t == StageTimes{1, 1, 1} ? 1e-9 : 0.01;
          EXPECT_LE(p.bubble(size, t), bubble * (1 + 1e-9) + 1e-9) << p.name();
          EXPECT_NEAR(p.bubble(size, t), bubble, tolerance * microbatches * t.sum()) << p.name() << " " << ranks;
        }
        const std::vector<Peak> peaks = peaks_of(s, even_bytes(s.placement, kKept));
        for (int r = 0; r < ranks; ++r)
          EXPECT_EQ(p.in_flight(size, r), peaks[static_cast<size_t>(r)].bytes) << p.name();
      }
    }
  }
}

// Many microbatches are those of two shorter orders gone on with: exact where an order repeats itself.
TEST(Pipelines, FiguresOfManyMicrobatchesFollowFromFewer) {
  for (const char* name :
       {"gpipe", "1f1b", "interleaved", "zb_h1", "zb_h2", "zb_v", "v_half", "v_min", "dual_pipe_v"}) {
    const Generator bare = without_formulas(find_generator(name));
    const Pipeline p(bare);
    const PipelineSize size{8, some_chunks(p), 160};
    const Schedule s = p.make(size);
    for (const StageTimes t : {StageTimes{1, 1, 1}, {1, 1.5, 0.7}}) {
      EXPECT_NEAR(p.bubble(size, t), timing_of(s, even_times(s.placement, t)).synchronous(),
                  0.005 * size.microbatches * t.sum())
          << name;
    }
    EXPECT_NEAR(p.in_flight(size, 0), peaks_of(s, even_bytes(s.placement, kKept))[0].bytes, 1e-9) << name;
  }
}

TEST(Pipelines, RowsSayWhatTheirOrdersShow) {
  const auto row = [](const char* name) -> const Pipeline& { return *find_pipeline(name); };
  EXPECT_EQ(find_pipeline("none"), nullptr);
  EXPECT_EQ(std::ssize(pipelines()), std::ssize(generators()));
  for (const char* name : {"interleaved_fused", "dual_pipe", "dual_pipe_v", "mindspeed_dual_pipe_v"})
    EXPECT_TRUE(row(name).pairs()) << name;
  for (const char* name : {"1f1b", "interleaved", "zb_v", "v_min"}) EXPECT_FALSE(row(name).pairs()) << name;
  for (const char* name : {"zb_v", "v_half", "dual_pipe", "dual_pipe_v"}) EXPECT_TRUE(row(name).folded()) << name;
  for (const char* name : {"1f1b", "interleaved", "zb_h2"}) EXPECT_FALSE(row(name).folded()) << name;
  EXPECT_EQ(row("dual_pipe").routes(), 2);
  EXPECT_EQ(row("dual_pipe_v").routes(), 1);
  EXPECT_EQ(row("interleaved").chunks(), 0);
  EXPECT_EQ(row("interleaved").least_chunks(), 2);
  EXPECT_EQ(row("interleaved_fused").least_chunks(), 1);
  EXPECT_EQ(row("zb_v").chunks(), 2);
  EXPECT_EQ(row("1f1b").misfit({1, 1, 4}), "");
  EXPECT_NE(row("zb_h1").misfit({1, 1, 4}), "");
  // Of half of the ranks' microbatches on the way in and out no pair is made.
  const PipelineSize size{8, 2, 64};
  const Generator bare = without_formulas(find_generator("dual_pipe_v"));
  EXPECT_NEAR(Pipeline(bare).unpaired(size), row("dual_pipe_v").unpaired(size), 1);
}

}  // namespace
}  // namespace heddle::schedule
