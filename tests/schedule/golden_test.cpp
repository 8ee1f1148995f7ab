// Orders written out by hand, as the papers and programs define them, and the text form in which they stand here.
#include <gtest/gtest.h>

#include "heddle/base/error.h"
#include "heddle/schedule/generators/generators.h"
#include "heddle/schedule/generators/interleaved.h"
#include "heddle/schedule/text.h"

namespace heddle::schedule {
namespace {

void expect_order(const std::string& golden, const Schedule& made) {
  EXPECT_EQ(golden, text_of(made));
  EXPECT_EQ(read_schedule(golden), made);
}

TEST(Golden, ZbH1) {
  expect_order(
      "zb_h1 ranks=3 stages=3 microbatches=4 placement=loop\n"
      "r0 F0 F1 F2 I0 W0 F3 I1 W1 I2 W2 I3 W3\n"
      "r1 F0 F1 I0 F2 I1 W0 F3 I2 W1 I3 W2 W3\n"
      "r2 F0 I0 F1 I1 F2 I2 W0 F3 I3 W1 W2 W3\n",
      make_schedule("zb_h1", {.ranks = 3, .microbatches = 4}));
}

TEST(Golden, InterleavedFused) {
  expect_order(
      "interleaved_fused ranks=2 stages=4 microbatches=4 placement=loop\n"
      "r0 F0.0 F0.1 F1.0 F1.1 F0.2 [F0.3|B1.0] [F1.2|B1.1] [F1.3|B0.0] B0.1 B1.2 B1.3 B0.2 B0.3\n"
      "r1 F0.0 F0.1 F1.0 [F1.1|B1.0] [F0.2|B1.1] [F0.3|B0.0] [F1.2|B0.1] [F1.3|B1.2] B1.3 B0.2 B0.3\n",
      make_schedule("interleaved_fused", {.ranks = 2, .microbatches = 4, .chunks = 2}));
}

TEST(Golden, OneForwardOneBackward) {
  expect_order(
      "1f1b ranks=3 stages=3 microbatches=4 placement=loop\n"
      "r0 F0 F1 F2 B0 F3 B1 B2 B3\n"
      "r1 F0 F1 B0 F2 B1 F3 B2 B3\n"
      "r2 F0 B0 F1 B1 F2 B2 F3 B3\n",
      make_schedule("1f1b", {.ranks = 3, .microbatches = 4}));
}

TEST(Golden, FewMicrobatches) {
  expect_order(
      "1f1b ranks=3 stages=3 microbatches=1 placement=loop\n"
      "r0 F0 B0\n"
      "r1 F0 B0\n"
      "r2 F0 B0\n",
      make_schedule("1f1b", {.ranks = 3, .microbatches = 1}));
}

TEST(Golden, ZbH2) {
  expect_order(
      "zb_h2 ranks=2 stages=2 microbatches=3 placement=loop\n"
      "r0 F0 F1 F2 I0 W0 I1 W1 I2 W2\n"
      "r1 F0 I0 F1 I1 F2 I2 W0 W1 W2\n",
      make_schedule("zb_h2", {.ranks = 2, .microbatches = 3}));
}

// Microbatches 0 1 2 of each chunk, then 3 4: a group of three and a smaller one.
TEST(Golden, RaggedInterleaved) {
  expect_order(
      "interleaved ranks=2 stages=4 microbatches=5 placement=loop\n"
      "r0 F0.0 F0.1 F0.2 F1.0 F1.1 F1.2 B1.0 F0.3 B1.1 F0.4 B1.2 F1.3 B0.0 F1.4 B0.1 B0.2 B1.3 B1.4 B0.3 B0.4\n"
      "r1 F0.0 F0.1 F0.2 F1.0 B1.0 F1.1 B1.1 F1.2 B1.2 F0.3 B0.0 F0.4 B0.1 F1.3 B0.2 F1.4 B1.3 B1.4 B0.3 B0.4\n",
      interleaved(2, 2, 5, 3));
}

// One microbatch left over from groups of two: made for six, the last taken out.
TEST(Golden, TrimmedInterleaved) {
  expect_order(
      "interleaved ranks=2 stages=4 microbatches=1 placement=loop\n"
      "r0 F0.0 F1.0 B1.0 B0.0\n"
      "r1 F0.0 F1.0 B1.0 B0.0\n",
      interleaved(2, 2, 1));
}

TEST(Golden, UnknownNames) {
  const auto message = [](const char* name, GeneratorOptions options) -> std::string {
    try {
      make_schedule(name, options);
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(message("zb_h3", {}), "unknown schedule 'zb_h3', did you mean 'zb_h1'?");
  EXPECT_NE(message("nothing like it", {}).find("accepted: gpipe, 1f1b, interleaved"), std::string::npos);
  EXPECT_EQ(message("1f1b", {.ranks = 2, .chunks = 2}), "1f1b: 2 chunks a rank, accepted 1");
  EXPECT_EQ(message("interleaved", {.ranks = 2, .chunks = 1}),
            "interleaved: 1 chunks a rank, accepted 2 to 32768 (with one it is 1f1b)");
  EXPECT_EQ(message("interleaved", {.ranks = 4, .group = 3}),
            "interleaved: groups of 3 microbatches, accepted 4 (the ranks) to 4194304");
  EXPECT_EQ(message("gpipe", {.ranks = 0}), "gpipe: 0 ranks, accepted 1 to 65536");
  EXPECT_EQ(message("gpipe", {.ranks = 2, .microbatches = 0}), "schedule: 0 microbatches, accepted 1 to 4194304");
  EXPECT_EQ(message("gpipe", {.ranks = 65536, .microbatches = 65536}),
            "schedule: 65536 stages × 65536 microbatches, accepted products up to 4194304");
}

}  // namespace
}  // namespace heddle::schedule
