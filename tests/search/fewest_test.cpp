// The fewest devices, of searches that are made up: what fits is said by the test.
#include "heddle/search/plans/fewest.h"

#include <gtest/gtest.h>

#include <set>

#include "heddle/base/error.h"
#include "heddle/model/shapes/shape_presets.h"

namespace heddle::search {
namespace {

Query query_of_fewest(int devices) {
  Query q;
  q.space.job.device = *cost::accelerator_named("H800");
  q.space.devices = devices;
  return q;
}

// A search that finds a plan on these counts, and refuses those.
auto finding(const std::set<int>& fits, const std::set<int>& refuses = {}) {
  return [=](const Query& q) {
    if (refuses.contains(q.space.devices)) config_error("no layout");
    Answer a;
    if (fits.contains(q.space.devices)) a.top.emplace_back();
    return a;
  };
}

std::set<int> multiples(int of, int from, int to) {
  std::set<int> all;
  for (int n = from; n <= to; n += of) all.insert(n);
  return all;
}

TEST(Fewest, CountsArePartsOfANodeAndWholeNodes) {
  EXPECT_EQ(counts_of_nodes(*cost::accelerator_named("H800"), 30), (std::vector<int>{1, 2, 4, 8, 16, 24}));
  EXPECT_EQ(counts_of_nodes(*cost::accelerator_named("H800"), 3), (std::vector<int>{1, 2}));
  EXPECT_EQ(counts_of_nodes(*cost::accelerator_named("GB200"), 144).back(), 144);
}

TEST(Fewest, IsTheLeastThatFits) {
  for (int least = 8; least <= 256; least += 8) {
    const auto run = finding(multiples(8, least, 256));
    const std::optional<Fewest> found = fewest_devices(query_of_fewest(256), run, run);
    ASSERT_TRUE(found);
    EXPECT_EQ(found->devices, least);
  }
}

// Counts that divide badly are no bound for those below.
TEST(Fewest, GapsHideNothing) {
  const auto run = finding({64, 96, 128, 256}, {88, 120, 104});
  const std::optional<Fewest> found = fewest_devices(query_of_fewest(256), run, run);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->devices, 64);
}

TEST(Fewest, WhatDoesNotHoldIsPassedOver) {
  const auto run = finding(multiples(8, 64, 256)), whole = finding(multiples(8, 80, 256));
  const std::optional<Fewest> found = fewest_devices(query_of_fewest(256), run, whole);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->devices, 80);
  EXPECT_EQ(found->answer.top.size(), 1u);
}

// A short list of plans that fit by estimate alone hides those that would do with less.
TEST(Fewest, AskedAgainWithLessRoom) {
  const auto run = [](const Query& q) {
    Answer a;
    a.timed = 1;
    if (q.space.devices >= 64 || (q.space.devices >= 48 && q.memory_bytes > 0)) a.top.emplace_back();
    return a;
  };
  const std::optional<Fewest> found = fewest_devices(query_of_fewest(256), run, run);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->devices, 48);
  EXPECT_EQ(found->answer.memory_bytes, usable_bytes(query_of_fewest(256).space.job.device));
}

// Devices that can't hold the state once are not searched.
TEST(Fewest, TooFewAreNotSearched) {
  Query q = query_of_fewest(256);
  q.space.job.shape = *model::find_shape("DeepSeek-V3");
  q.memory_bytes = 80e9;
  const double parameters = model::total_parameters(q.space.job.shape);
  int least = 1000;
  const auto run = [&](const Query& asked) {
    least = std::min(least, asked.space.devices);
    Answer a;
    if (asked.space.devices >= 200) a.top.emplace_back();
    return a;
  };
  const std::optional<Fewest> found = fewest_devices(q, run, run);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->devices, 200);
  EXPECT_FALSE(surely_too_few(q, least));
  EXPECT_TRUE(surely_too_few(q, 8));
  EXPECT_GE(least * q.memory_bytes, parameters * 18);
}

// Real searches of small models: asking only whether a plan fits changes no answer, nor does the order in which
// counts are asked for.
TEST(Fewest, IsWhatWholeSearchesOfEveryCountFind) {
  for (const auto& [name, memory_bytes] :
       {std::pair{"Llama-3-8B", 20e9}, {"Llama-3-8B", 44e9}, {"DeepSeek-V2-Lite", 24e9}, {"Qwen3-30B-A3B", 60e9}}) {
    SCOPED_TRACE(fmt::format("{} in {} bytes", name, memory_bytes));
    Query q = query_of_fewest(48);
    q.space.job.shape = *model::find_shape(name);
    q.space.job.sequence = 4096;
    q.space.job.global_batch = 96;
    q.memory_bytes = memory_bytes;
    q.short_list = 20;
    for (const char* only : {"schedule=1f1b,zb_h1", "cp=1", "microbatch=1"}) q.space.restriction.set(only);
    const auto answer_of = [](Query asked, bool any) {
      asked.any = any;
      try {
        return search(asked);
      } catch (const ConfigError&) {  // so many can't share the model
        return Answer{};
      }
    };
    int least = 0;
    for (const int devices : counts_of_nodes(q.space.job.device, q.space.devices)) {
      Query asked = q;
      asked.space.devices = devices;
      bool fits = false;
      for (const double part : {1.0, 0.95}) {
        asked.memory_bytes = part * memory_bytes;
        const Answer all = answer_of(asked, false), any = answer_of(asked, true);
        EXPECT_EQ(any.top.empty(), all.top.empty()) << devices;
        EXPECT_LE(any.timed, all.timed);
        fits |= !all.top.empty();
      }
      if (fits && least == 0) least = devices;
    }
    const std::optional<Fewest> found = fewest_devices(
        q, [](const Query& asked) { return search(asked); }, [](const Query& asked) { return search(asked); });
    ASSERT_TRUE(found);
    EXPECT_EQ(found->devices, least);
  }
}

TEST(Fewest, NothingWhereNothingFitsAndAllDevicesMustBePossible) {
  const auto none = finding({});
  EXPECT_FALSE(fewest_devices(query_of_fewest(64), none, none));
  const auto refused = finding({}, {64});
  EXPECT_THROW(fewest_devices(query_of_fewest(64), refused, refused), ConfigError);
}

}  // namespace
}  // namespace heddle::search
