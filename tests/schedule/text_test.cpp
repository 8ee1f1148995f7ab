// Texts that are no schedule: one line that says where, what was found and what is accepted.
#include "heddle/schedule/text.h"

#include <gtest/gtest.h>

#include "heddle/base/error.h"

namespace heddle::schedule {
namespace {

std::string refusal(const std::string& text) {
  try {
    read_schedule(text);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST(ScheduleText, RoundTripsEveryPlacement) {
  for (const std::string text : {
           "a ranks=1 stages=1 microbatches=1 placement=loop\nr0 F0 B0\n",
           "a ranks=1 stages=2 microbatches=1 placement=loop\nr0 F0.0 F1.0 I1.0 W1.0 B0.0\n",
           "a ranks=2 stages=4 microbatches=2 placement=v\nr0 F0.0 [F0.1|B1.0]\nr1\n",
           "a ranks=2 stages=2 microbatches=2 placement=two_way\nr0 F0.0 F1.1\nr1 F0.0 F1.1\n",
           "a ranks=3 stages=4 microbatches=1 placement=0,1,1,0\nr0 F0.0 F1.0\nr1 F1.0\nr2\n",
           "a ranks=2 stages=2 microbatches=2 routes=2 placement=0,1,0,1\nr0 F0.0 F1.1\nr1 W1.1\n",
       }) {
    EXPECT_EQ(text_of(read_schedule(text)), text);
  }
}

TEST(ScheduleText, EmptyLinesAndCommentsMeanNothing) {
  const Schedule s = read_schedule("# by hand\n\n a  microbatches=1\tranks=1 stages=1\r\n#\nr0 F0\tB0");
  EXPECT_EQ(text_of(s), "a ranks=1 stages=1 microbatches=1 placement=loop\nr0 F0 B0\n");
}

TEST(ScheduleText, RefusesEachFaultInOneLine) {
  const std::string two = "a ranks=2 stages=2 microbatches=2\n",
                    v = "a ranks=2 stages=4 microbatches=2 placement=v\n";
  const std::pair<std::string, std::string> cases[] = {
      {"", "line 0: found nothing, accepted a line such as 'NAME ranks=4 stages=4 microbatches=8 placement=loop'"},
      {"a ranks=2", "line 1: found no microbatches=, accepted microbatches= and a whole number"},
      {"ranks=2", "line 1: found 'ranks=2', accepted a name of up to 100 printable letters"},
      {"a rank=2", "line 1: found 'rank=2', accepted ranks=, stages=, microbatches=, routes=, placement="},
      {"a ranks=2 ranks=2", "line 1: found 'ranks=2', accepted ranks= once"},
      {"a ranks=2x microbatches=1 stages=2", "line 1: found ranks='2x', accepted ranks= and a whole number"},
      {"a ranks=-2 microbatches=1 stages=2", "line 1: found ranks='-2', accepted ranks= and a whole number"},
      {"a ranks=99999999999 microbatches=1 stages=2",
       "line 1: found ranks='99999999999', accepted ranks= and a whole number"},
      {"a ranks=99999 microbatches=1 stages=2", "line 1: found ranks=99999, accepted 1 to 65536"},
      {"a ranks=2 stages=3 microbatches=1",
       "line 1: found placement=loop, 3 stages, accepted a multiple of the ranks"},
      {"a ranks=2 stages=3 microbatches=1 placement=0,1,2",
       "line 1: found placement='0,1,2', accepted loop, v, two_way, or 3 ranks below 2 with commas between them"},
      {"a ranks=2 stages=3 microbatches=1 placement=0,1,",
       "line 1: found placement='0,1,', accepted loop, v, two_way, or 3 ranks below 2 with commas between them"},
      {two + "r1 F0", "line 2: found 'r1', accepted r0"},
      {two + "r0 F0", "line 2: found the end, accepted the line of rank 1"},
      {two + "r0\nr1\n\nr2", "line 5: found 'r2', accepted nothing after rank 1"},
      {two + "r0 F2", "line 2: found 'F2' on rank 0, accepted F0, I0, W0, B0 or [F1|B0], microbatches below 2"},
      {two + "r0 [F1|B0",
       "line 2: found '[F1|B0' on rank 0, accepted F0, I0, W0, B0 or [F1|B0], microbatches below 2"},
      {two + "r0 F\x1b[31m0",
       "line 2: found 'F?[31m0' on rank 0, accepted F0, I0, W0, B0 or [F1|B0], microbatches below 2"},
      {v + "r0 F0",
       "line 2: found 'F0' on rank 0, accepted F0.0, I0.0, W0.0, B0.0 or [F0.1|B1.0], chunks below 2, microbatches "
       "below 2"},
      {v + "r0 F2.0",
       "line 2: found 'F2.0' on rank 0, accepted F0.0, I0.0, W0.0, B0.0 or [F0.1|B1.0], chunks below 2, "
       "microbatches "
       "below 2"},
      {"a ranks=1 stages=1 microbatches=1\nr0 F0 F0 F0 F0", "line 2: found 4 actions, accepted up to 3"},
      {"a ranks=2 stages=1 microbatches=1 placement=0\nr0\nr1 F0",
       "line 3: found 'F0' on rank 1, accepted no actions: the rank has no stage"},
  };
  for (const auto& [text, message] : cases) EXPECT_EQ(refusal(text), "schedule text, " + message);
  EXPECT_EQ(refusal("a ranks=65536 stages=65536 microbatches=65536\n"),
            "schedule: 65536 stages × 65536 microbatches, accepted products up to 4194304");
}

}  // namespace
}  // namespace heddle::schedule
