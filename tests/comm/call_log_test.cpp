#include "heddle/comm/calls/call_log.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <thread>

#include "heddle/base/error.h"
#include "heddle/comm/calls/noted_world.h"
#include "heddle/comm/calls/rank_status.h"
#include "heddle/comm/threads/thread_world.h"

namespace heddle::comm {
namespace {

namespace fs = std::filesystem;

class CallPages : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / fs::path("heddle-pages-" + std::to_string(::getpid()));
    fs::create_directory(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }
  std::string path(int rank) const { return page_path(folder_.string(), rank); }
  fs::path folder_;
};

TEST_F(CallPages, AreForTheirOwnerAndGoWithARankThatEndsWell) {
  {
    CallLog log(1, 2, "host-b", 7);
    log.at_step(3);
    log.publish(path(1));
    struct stat status {};
    ASSERT_EQ(::stat(path(1).c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 0777, 0600u);
    log.at_step(4);
    const std::optional<RankStatus> seen = read_rank_status(path(1));
    ASSERT_TRUE(seen);
    EXPECT_EQ(seen->first_step, 3);
    EXPECT_EQ(seen->step, 4);
    EXPECT_EQ(seen->host, "host-b");
    EXPECT_EQ(seen->generation, 7);
    EXPECT_THROW(CallLog(1, 2, "", 7).publish(path(1)), SystemError);
    log.ended(RankState::failed, "no \x1b space", 1, true);
    log.ended(RankState::done);  // the first cause stays
  }
  const std::optional<RankStatus> left = read_rank_status(path(1));
  ASSERT_TRUE(left);
  EXPECT_EQ(left->state, RankState::failed);
  EXPECT_EQ(left->reason, "no \\x1b space");
  EXPECT_TRUE(left->input);
  {
    CallLog log(0, 2, "a", 7);
    log.publish(path(0));
    log.ended(RankState::done);
  }
  EXPECT_FALSE(fs::exists(path(0)));
}

TEST_F(CallPages, OfAnythingElseAreNone) {
  std::ofstream(path(0)) << "no page";
  std::ofstream(path(1)) << std::string(sizeof(CallPage), 'x');
  fs::create_symlink(path(0), path(2));
  EXPECT_TRUE(read_rank_statuses(folder_.string()).empty());
}

// Three ranks in two collectives; the third leaves after the first of them.
TEST_F(CallPages, SayWhoNeverEntered) {
  std::vector<RankStatus> standing;
  std::atomic<int> waiting{0};
  EXPECT_THROW(
      run_on_threads(3,
                     [&](World& plain) {
                       CallLog log(plain.rank(), 3, "host", 1);
                       log.publish(path(plain.rank()));
                       NotedWorld world(plain, log);
                       const auto all = world.communicator({0, 1, 2}, "comm.tp");
                       all->exchange(nullptr, {}, nullptr, {});
                       if (plain.rank() != 2) {
                         ++waiting;
                         all->exchange(nullptr, {}, nullptr, {});
                       }
                       while (waiting < 2) std::this_thread::yield();
                       for (int i = 0; i < 1000; ++i) {
                         standing = read_rank_statuses(folder_.string());
                         if (standing.size() == 3 && standing[0].open.size() + standing[1].open.size() == 2) break;
                         std::this_thread::sleep_for(std::chrono::milliseconds(1));
                       }
                       world.abort("enough", false);
                     }),
      SystemError);
  const std::vector<Awaited> found = awaited(standing);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].missing, std::vector<int>{2});
  EXPECT_EQ(found[0].waiting, (std::vector<int>{0, 1}));
  EXPECT_EQ(found[0].call.sequence, 2u);
  const std::string text = text_of(found[0], standing, found[0].since_ns + 1'500'000'000);
  EXPECT_EQ(text, "rank 2 (host) never entered exchange 2 of comm.tp, where ranks 0, 1 wait since 1.5 s");
}

// A rank that is missing in one collective because it waits in another is not the first to be named.
TEST_F(CallPages, BlameFirstWhoWaitsForNobody) {
  const auto rank = [](int number, uint64_t entered_a, uint64_t entered_b, std::optional<OpenCall> open) {
    RankStatus s;
    s.rank = number;
    s.ranks = 3;
    s.channels = {{"a", 1, entered_a, 0}, {"b", 2, entered_b, 0}};
    if (open) s.open.push_back(*open);
    return s;
  };
  const OpenCall in_a{CallKind::exchange, "a", 1, 5, -1, -1, 0, 100},
      in_b{CallKind::exchange, "b", 2, 9, -1, -1, 0, 200};
  const std::vector<RankStatus> ranks{rank(0, 5, 8, in_a), rank(1, 4, 9, in_b), rank(2, 5, 8, std::nullopt)};
  const std::vector<Awaited> found = awaited(ranks);
  ASSERT_EQ(found.size(), 2u);
  // Rank 1 is missing in a, but waits in b; rank 2 is missing there, and waits for nobody.
  EXPECT_EQ(found[0].call.channel, "b");
  EXPECT_EQ(found[0].missing, (std::vector<int>{0, 2}));
  EXPECT_EQ(found[1].call.channel, "a");
}

TEST(ThreadWorld, EndsAWaitThatIsTooLong) {
  std::string reason;
  try {
    run_on_threads(2, [](World& world) {
      world.set_patience(0.5);
      if (world.rank() == 0) world.communicator({0, 1}, "comm.dp")->exchange(nullptr, {}, nullptr, {});
    });
  } catch (const SystemError& error) {
    reason = error.what();
  }
  EXPECT_NE(reason.find("comm.dp: a rank has waited 0 s for another of its 2"), std::string::npos) << reason;
}

TEST(CallLog, KeepsTheLastCallsAndCountsAll) {
  CallLog log(0, 1, "a", 0);
  const int channel = log.channel("comm.x", {0});
  EXPECT_EQ(channel, log.channel("comm.x", {0}));
  for (int i = 0; i < 1000; ++i) log.end(log.begin(channel, CallKind::exchange, -1));
  EXPECT_EQ(log.page().channel[0].entered.load(), 1000u);
  EXPECT_EQ(log.page().channel[0].left.load(), 1000u);
  for (uint32_t c = 1; c < CallPage::kChannels + 5; ++c) log.channel("comm.more", {static_cast<int>(c)});
  EXPECT_EQ(log.channel("comm.too many", {0}), -1);
  log.end(log.begin(-1, CallKind::exchange, -1));
}

}  // namespace
}  // namespace heddle::comm
