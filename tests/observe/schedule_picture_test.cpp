// Schedules drawn with letters and as SVG.
#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>

#include "heddle/observe/charts/svg_schedule.h"
#include "heddle/observe/table.h"
#include "heddle/observe/text_schedule.h"
#include "heddle/schedule/generators/generators.h"
#include "heddle/schedule/text.h"

namespace heddle::observe {
namespace {

using schedule::make_schedule;
using schedule::Schedule;

schedule::Timing timing(const Schedule& s) { return timing_of(s, even_times(s.placement)); }

TEST(SchedulePicture, LettersLineUpWithTime) {
  const Schedule s = make_schedule("zb_h1", {.ranks = 3, .microbatches = 4});
  EXPECT_EQ(text_schedule(s, timing(s), 100, {.unicode = true}),
            "  0 │F0─F1─F2─      I0─W0─F3─I1─W1─I2─W2─I3─W3─\n"
            "  1 │   F0─F1─   I0─F2─I1─W0─F3─I2─W1─I3─W2─W3─\n"
            "  2 │      F0─I0─F1─I1─F2─I2─W0─F3─I3─W1─W2─W3─\n"
            "    └──────────────────────────────────────────\n"
            "     0              5              10\n");
}

TEST(SchedulePicture, PairsStandAsHalves) {
  const Schedule s = make_schedule("interleaved_fused", {.ranks = 2, .microbatches = 2});
  const std::string text = text_schedule(s, timing(s), 200, {});
  EXPECT_NE(text.find("F1.0-F1.1----B1.0---B1.1------B0.0"), std::string::npos) << text;
  EXPECT_EQ(text.find("─"), std::string::npos) << "no letters beyond ASCII where the terminal has none";
}

TEST(SchedulePicture, KeepsToTheColumns) {
  for (const char* name : {"1f1b", "interleaved", "dual_pipe_v"}) {
    const Schedule s = make_schedule(name, {.ranks = 100, .microbatches = 300});
    for (const Terminal& terminal : {Terminal{}, Terminal{.unicode = true}}) {
      std::istringstream lines(text_schedule(s, timing(s), 90, terminal));
      int count = 0;
      for (std::string line; std::getline(lines, line); ++count) EXPECT_LE(display_width(line), 90);
      EXPECT_EQ(count, 64 + 3) << "64 ranks, the axis, and a word about the rest";
    }
  }
}

TEST(SchedulePicture, ColoursEndWhereTheyShould) {
  const Schedule s = make_schedule("dual_pipe_v", {.ranks = 2, .microbatches = 4});
  std::istringstream lines(text_schedule(s, timing(s), 90, {.colour = true, .unicode = true}));
  std::string line;
  for (int r = 0; r < 2; ++r) {
    std::getline(lines, line);
    EXPECT_NE(line.find("\x1b[48;5;25;38;5;231m"), std::string::npos) << "a forward of the first chunk";
    EXPECT_TRUE(line.ends_with("\x1b[0m"));
  }
}

size_t occurrences(const std::string& text, const std::string& of) {
  size_t count = 0;
  for (size_t at = text.find(of); at != std::string::npos; at = text.find(of, at + 1)) ++count;
  return count;
}

TEST(SchedulePicture, SvgHoldsEveryAction) {
  Schedule s = make_schedule("dual_pipe_v", {.ranks = 2, .microbatches = 5});
  s.name = "a < b & \"c\"";
  const std::string svg = svg_schedule(s, timing(s), "of two ranks & more");
  size_t parts = 0;
  for (const auto& list : s.order) {
    for (const schedule::Action& action : list) parts += action.with ? 2 : 1;
  }
  EXPECT_EQ(occurrences(svg, "<text class=\"number"), parts);
  EXPECT_NE(svg.find("a &lt; b &amp; &quot;c&quot;"), std::string::npos);
  EXPECT_NE(svg.find("two ranks &amp; more"), std::string::npos);
  EXPECT_NE(svg.find("fused pair"), std::string::npos);
  EXPECT_EQ(occurrences(svg, "<svg"), occurrences(svg, "</svg>"));
}

TEST(SchedulePicture, SvgOfAHugeScheduleStaysSmall) {
  const Schedule s = make_schedule("interleaved", {.ranks = 64, .microbatches = 512, .chunks = 8});
  const std::string svg = svg_schedule(s, timing(s), "");
  EXPECT_LT(svg.size(), 4U << 20);
  EXPECT_NE(svg.find("too narrow to tell apart"), std::string::npos);
}

TEST(SchedulePicture, NothingTakesTime) {
  const Schedule s = make_schedule("1f1b", {.ranks = 2, .microbatches = 2});
  const schedule::Timing t = timing_of(s, even_times(s.placement, {0, 0, 0}));
  EXPECT_EQ(text_schedule(s, t, 80, {}), "nothing takes time\n");
  EXPECT_NE(svg_schedule(s, t, "").find("</svg>"), std::string::npos);
}

}  // namespace
}  // namespace heddle::observe
