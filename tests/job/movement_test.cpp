// When a job last moved is told by the clock of whoever looks, whatever its hosts' own clocks say.
#include "heddle/job/movement.h"

#include <gtest/gtest.h>

#include "heddle/comm/calls/same_clock.h"

namespace heddle::job {
namespace {

constexpr int64_t kSecond_ns = 1'000'000'000, kHour_ns = 3600 * kSecond_ns;

comm::RankStatus page(int rank, int64_t moved_ns, int64_t step = 1) {
  comm::RankStatus page;
  page.rank = rank;
  page.ranks = 2;
  page.process = 100 + rank;
  page.moved_ns = moved_ns;
  page.step = step;
  return page;
}

TEST(Movement, IsOfNoHostsClock) {
  for (const int64_t skew_ns : {-kHour_ns, int64_t{0}, kHour_ns}) {
    const int64_t start_ns = 1'700'000'000 * kSecond_ns + skew_ns;
    Movement movement(10);
    EXPECT_DOUBLE_EQ(movement.idle_s(25), 15);
    movement.see({page(0, start_ns), page(1, start_ns)}, 30);
    EXPECT_DOUBLE_EQ(movement.idle_s(30), 0);
    movement.see({page(0, start_ns), page(1, start_ns + 1)}, 40);
    movement.see({page(0, start_ns), page(1, start_ns + 1)}, 100);
    EXPECT_DOUBLE_EQ(movement.idle_s(100), 60);
    // Back, as a clock that is set does: it moves all the same.
    movement.see({page(0, start_ns - 5), page(1, start_ns + 1)}, 110);
    EXPECT_DOUBLE_EQ(movement.idle_s(111), 1);
  }
}

TEST(Movement, TellsSinceWhenByOurClock) {
  const int64_t now_ns = 1'700'000'000 * kSecond_ns;
  Movement movement(0);
  comm::RankStatus ahead = page(0, now_ns + kHour_ns), behind = page(1, now_ns - kHour_ns);
  ahead.open.push_back(
      {.channel = "comm.tp", .members = 1, .sequence = 7, .entered_ns = ahead.moved_ns - kSecond_ns});
  movement.see({ahead, behind}, 20);
  const std::vector<comm::RankStatus> told = movement.by_clock({ahead, behind}, 50, now_ns + 30 * kSecond_ns);
  EXPECT_EQ(told[0].moved_ns, now_ns);
  EXPECT_EQ(told[1].moved_ns, now_ns);
  EXPECT_EQ(told[0].open[0].entered_ns, now_ns - kSecond_ns);
}

// Without anybody who has looked: by the collectives that they have left together.
TEST(Movement, HostsMeetInCollectives) {
  const auto left = [](comm::RankStatus page, const std::string& host, int64_t skew_ns,
                       const std::vector<std::pair<uint64_t, int64_t>>& meetings) {
    page.host = host;
    for (const auto& [sequence, at_ns] : meetings)
      page.recent.push_back({.channel = "comm.dp",
                             .members = 3,
                             .sequence = sequence,
                             .entered_ns = at_ns - kSecond_ns + skew_ns,
                             .left_ns = at_ns + skew_ns + page.rank});
    page.last = page.recent.back();
    page.moved_ns = page.last->left_ns;
    return page;
  };
  const int64_t at = 1'700'000'000 * kSecond_ns;
  std::vector<comm::RankStatus> pages{
      left(page(0, 0), "a", 0, {{1, at}, {2, at + kSecond_ns}}),
      left(page(1, 0), "b", kHour_ns, {{2, at + kSecond_ns}, {3, at + 2 * kSecond_ns}}),
      left(page(2, 0), "c", -kHour_ns, {{3, at + 2 * kSecond_ns}})};
  pages = comm::by_one_clock(std::move(pages), "a");
  EXPECT_EQ(pages[0].moved_ns, at + kSecond_ns);
  EXPECT_NEAR(static_cast<double>(pages[1].moved_ns), static_cast<double>(at + 2 * kSecond_ns), 10);
  EXPECT_NEAR(static_cast<double>(pages[2].moved_ns), static_cast<double>(at + 2 * kSecond_ns), 10);
  EXPECT_NEAR(static_cast<double>(pages[2].recent[0].entered_ns), static_cast<double>(at + kSecond_ns), 10);
  for (const comm::Meeting& met : comm::meetings(pages)) EXPECT_LT(met.spread_ns, 10);
}

}  // namespace
}  // namespace heddle::job
