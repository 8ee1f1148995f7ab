// A batch that grows: of each step what the rule says of the sequences read before it.
#include "heddle/config/batch_ramp.h"

#include <gtest/gtest.h>

#include "heddle/base/error.h"

namespace heddle::config {
namespace {

TEST(BatchRamp, EachStepHasWhatTheSequencesBeforeItSay) {
  struct Case {
    const char* text;
    int64_t whole;
  };
  for (const Case& c : {Case{"16 16 1000", 64}, Case{"2 3 100", 17}, Case{"8 8 5", 64}, Case{"4 4 4096", 8},
                        Case{"64 1 100", 64}, Case{"", 12}}) {
    const BatchRamp ramp = parse_batch_ramp(c.text);
    EXPECT_EQ(text_of(ramp), c.text);
    const int64_t increments = ramp ? (c.whole - ramp.start) / ramp.increment : 0;
    int64_t consumed = 0;
    for (int64_t step = 0; step < 400; ++step) {
      int64_t batch = c.whole;
      if (increments > 0) {  // Megatron-LM: the samples read ÷ those of an increment
        const int64_t made = consumed * increments / ramp.sequences;
        batch = std::min(c.whole, ramp.start + made * ramp.increment);
      }
      const BatchRamp::Place place = ramp.after(step, c.whole);
      ASSERT_EQ(place.consumed, consumed) << c.text << ", step " << step;
      ASSERT_EQ(place.batch, batch) << c.text << ", step " << step;
      consumed += batch;
    }
  }
}

TEST(BatchRamp, RefusesWhatLeadsNowhere) {
  for (const char* text : {"1 2", "16 16 100 4", "a b c", "0 1 10", "16 16 1e3", "-1 1 10"})
    EXPECT_THROW(parse_batch_ramp(text), ConfigError) << text;
  EXPECT_THROW(check_batch_ramp({16, 10, 100}, 64, 2), ConfigError);
  EXPECT_THROW(check_batch_ramp({16, 16, 100}, 64, 32), ConfigError);
  EXPECT_THROW(check_batch_ramp({128, 16, 100}, 64, 2), ConfigError);
  EXPECT_THROW(check_batch_ramp({2, 2, 1000}, 1024, 2), ConfigError);
  EXPECT_NO_THROW(check_batch_ramp({16, 16, 100}, 64, 8));
}

}  // namespace
}  // namespace heddle::config
