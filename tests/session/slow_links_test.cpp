// Slow links are found by the exchanges of the steps and named with what is slow; noise is not.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <map>

#include "heddle/base/statistics.h"
#include "heddle/comm/calls/noted_world.h"
#include "heddle/comm/threads/thread_world.h"
#include "heddle/session/slow/alarm.h"
#include "heddle/session/slow/link_fits.h"
#include "heddle/train/run_config_plan.h"
#include "tests/support/drawn_exchanges.h"
#include "tests/support/slow_world.h"
#include "tests/support/tiny_models.h"
#include "tests/train/rank_trainers.h"

namespace heddle::session {
namespace {

TEST(SlowLinks, AreFoundAndNamed) {
  int named = 0, others = 0;
  constexpr int kDraws = 24;
  for (uint64_t draw = 0; draw < kDraws; ++draw) {
    constexpr std::array<std::pair<int, int>, 4> kLayouts{{{4, 1}, {8, 8}, {16, 4}, {32, 8}}};
    const auto [ranks, on_node] = kLayouts[draw % kLayouts.size()];
    const test::FoundLink found = test::find_drawn_link(draw, ranks, on_node, LinkFits::kSlow);
    named += found.named;
    others += found.others;
  }
  EXPECT_GE(named, kDraws * 95 / 100);
  EXPECT_LE(others, 1);
}

TEST(SlowLinks, CleanWindowsRaiseNoAlarm) {
  for (const auto& [ranks, on_node] : {std::pair{4, 1}, {8, 8}, {16, 4}, {32, 8}}) {
    test::DrawnExchanges exchanges(1000 + static_cast<uint64_t>(ranks), ranks, on_node);
    LinkFits fits(exchanges.node_of());
    for (int window = 0; window < 2000 / ranks; ++window) {
      fits.add(1 + 20 * window, exchanges.window());
      ASSERT_TRUE(fits.found().empty()) << ranks << " ranks, window " << window;
    }
  }
}

TEST(SlowLinks, OnesThatRecoverAreTold) {
  test::DrawnExchanges exchanges(7, 8, 1);
  LinkFits fits(exchanges.node_of());
  const SlowLink slow{.scope = LinkScope::rank, .a = 3, .times = 1.4};
  int found = 0, ended = 0;
  for (int window = 1; window <= 60; ++window) {
    fits.add(20 * window, exchanges.window(window > 20 && window <= 30 ? &slow : nullptr));
    if (!fits.found().empty()) found = window;
    if (!fits.ended().empty()) ended = window;
    if (window != 30) continue;
    ASSERT_EQ(fits.slow().size(), 1u);
    EXPECT_EQ(fits.slow()[0].scope, LinkScope::rank);
    EXPECT_EQ(fits.slow()[0].a, 3);
    EXPECT_NEAR(fits.slow()[0].times, 1.4, 0.1);
    EXPECT_EQ(fits.slow()[0].since, 20 * 21);
  }
  EXPECT_EQ(found, 20 + LinkFits::kWindows);
  EXPECT_GT(ended, 30);
  EXPECT_LE(ended, 40);
}

TEST(SlowLinks, AreSlowFromTheStartAmongMany) {
  test::DrawnExchanges exchanges(9, 16, 1);
  LinkFits fits(exchanges.node_of());
  const SlowLink slow{.scope = LinkScope::rank, .a = 5, .times = 1.5};
  std::vector<SlowLink> all;
  for (int window = 1; window <= 10; ++window) {
    fits.add(20 * window, exchanges.window(&slow));
    all.insert(all.end(), fits.found().begin(), fits.found().end());
  }
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0].scope, LinkScope::rank);
  EXPECT_EQ(all[0].a, 5);
}

TEST(SlowLinks, OfBothEndsTheLaterOneKnows) {
  std::vector<SeenCall> own, theirs;
  for (uint64_t call = 0; call < LinkTimes::kLeastCalls; ++call) {
    own.push_back({call, 1, call % 2 == 0 ? 0.5F : 0.1F, 100});
    theirs.push_back({call, 1, call % 2 == 0 ? 0.1F : 0.7F, 100});
  }
  own.push_back({99, 1, 1e-6F, 100});  // which the other end has not kept
  const std::vector<LinkTime> times = times_of_pair(5, 2, own, theirs);
  ASSERT_EQ(times.size(), 1u);
  EXPECT_EQ(times[0].a, 2);
  EXPECT_EQ(times[0].b, 5);
  EXPECT_NEAR(std::exp(times[0].log_s), 0.1, 1e-6);
  EXPECT_TRUE(times_of_pair(5, 2, std::span(own).first(3), theirs).empty());
}

TEST(SlowLinks, AreTold) {
  const RankPlaces places{{"host-a", "host-a", "host-b", "host-b"}, {0, 0, 1, 1}};
  const SlowLink node{LinkScope::node, 1, -1, 41, 1.2, 6e-3};
  const Alarm alarm = alarm_of(node, places);
  EXPECT_EQ(
      alarm.line,
      "between node 1 (host-b) and every other exchanges take 1.20 times as long as on links alike since step "
      "41, 6.0 ms in place of 5.0 ms");
  EXPECT_EQ(alarm.json["event"], "slow_link");
  EXPECT_EQ(alarm.json["pairs"][0]["ranks"], nlohmann::json::array({2, 3}));
  EXPECT_EQ(alarm.json["pairs"][0]["node"], 1);
  EXPECT_EQ(short_name({LinkScope::pair, 1, 3}), "1-3");
}

// Four ranks that train over links of a stated rate: rank 0 has a time of each, and one stands out.
TEST(SlowLinks, AreTimedWhileTheyTrain) {
  config::RunConfig config;
  config.model = test::tiny_model();
  config.train.global_batch = 4;
  config.train.microbatch = 1;
  config.train.sequence_length = 64;
  config.device.threads = 1;
  config.plan.mesh.dp = config.plan.mesh.ep = 4;
  const test::Links links{1e6, 1, 2, 2};
  comm::run_on_threads(4, [&](comm::World& plain) {
    test::SlowWorld slow(plain, links);
    comm::CallLog log(plain.rank(), 4, "host", 0);
    comm::NotedWorld world(slow, log);
    train::Trainer trainer(train::trainer_options_of(config), &world);
    trainer.initialise();
    LinkTimes exchanges(world, log.links());
    for (uint64_t step = 1; step <= 6; ++step) (void)trainer.step(train::random_sequences(trainer, 4, step));
    const std::vector<LinkTime> times = exchanges.gather(trainer.lowered().program);
    EXPECT_TRUE(exchanges.gather(trainer.lowered().program).empty());
    if (world.rank() != 0) {
      EXPECT_TRUE(times.empty());
      return;
    }
    std::map<std::pair<int, int>, std::vector<double>> log_rates;
    for (const LinkTime& time : times) log_rates[{time.a, time.b}].push_back(time.log_s - time.log_bytes);
    ASSERT_EQ(log_rates.size(), 6u);
    const auto rate = [&](int a, int b) { return std::exp(-quantile(log_rates[{a, b}], 0.5)); };
    EXPECT_NEAR(rate(1, 2), 0.5e6, 0.12e6);
    EXPECT_NEAR(rate(0, 3), 1e6, 0.25e6);
  });
}

}  // namespace
}  // namespace heddle::session
