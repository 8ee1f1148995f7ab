// A host whose memory is full costs copies of the state, never the run.
#include "heddle/session/agent/room.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <filesystem>

#include "heddle/train/controllers/snapshot_schedule.h"
#include "tests/support/scratch_folder.h"
#include "tests/train/rank_trainers.h"
#include "tests/train/small_options.h"

namespace heddle::session {
namespace {

/// Files take no more bytes than this while it lives: the nearest to a file system that is full.
class SmallFiles {
 public:
  explicit SmallFiles(rlim_t bytes) : before_signal_(std::signal(SIGXFSZ, SIG_IGN)) {
    getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit now{bytes, before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &now);
  }
  ~SmallFiles() {
    setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, before_signal_);
  }
  SmallFiles(const SmallFiles&) = delete;
  SmallFiles& operator=(const SmallFiles&) = delete;

 private:
  rlimit before_{};
  void (*before_signal_)(int);
};

train::TrainerOptions options_in_room(const std::string& folder) {
  train::TrainerOptions options = train::small_options({.dp = 2}, 2);
  options.plan.snapshot_every = 1;
  options.snapshots = {folder, "0123456789abcdef0123456789abcdef", 1};
  return options;
}

TEST(Room, IsLookedForBeforeItIsTaken) {
  const ScratchFolder scratch;
  const train::TrainerOptions options = options_in_room(scratch / "");
  comm::ThreadWorlds thread_worlds(std::vector<int>{0, 0});
  std::vector<std::unique_ptr<comm::World>> worlds;
  for (int rank = 0; rank < 2; ++rank) worlds.push_back(thread_worlds.world(rank));
  const auto told = [&] {
    std::vector<std::string> why(2);
    std::vector<std::thread> ranks;
    for (size_t r = 0; r < 2; ++r)
      ranks.emplace_back([&, r] { why[r] = no_room_for_copies(options, worlds[r].get()); });
    for (std::thread& rank : ranks) rank.join();
    return why;
  };
  EXPECT_EQ(told(), (std::vector<std::string>{"", ""}));
  {
    const SmallFiles full(1 << 14);
    for (const std::string& why : told()) EXPECT_NE(why.find("has no room for"), std::string::npos) << why;
  }
  EXPECT_TRUE(std::filesystem::is_empty(scratch / ""));
  EXPECT_EQ(told(), (std::vector<std::string>{"", ""}));
}

// Memory that fills up while the run goes on: it is told once, and copies come again with room.
TEST(Room, ThatIsGoneCostsACopy) {
  const ScratchFolder scratch;
  const std::string folder = scratch / "";
  train::RankTrainers ranks(options_in_room(folder));
  ranks.each([](train::Trainer& trainer) { trainer.initialise(); });
  const auto advance = [&] {
    const auto step = static_cast<uint64_t>(ranks[0].steps_done());
    ranks.step(train::random_sequences(ranks[0], train::kSequences, step));
  };
  const auto newest = [&] {
    const std::optional<train::Checkpoint> found = train::newest_in_memory({folder}, true);
    return found ? found->state().step : -1;
  };
  for (int step = 1; step <= 3; ++step) advance();
  EXPECT_EQ(newest(), 2);
  {
    const SmallFiles full(8);
    for (int step = 4; step <= 6; ++step) advance();
  }
  EXPECT_TRUE(ranks[0].controllers().get<train::SnapshotSchedule>().snapshots().is_lost());
  EXPECT_TRUE(ranks[1].controllers().get<train::SnapshotSchedule>().snapshots().is_lost());
  EXPECT_NE(ranks[0].controllers().get<train::SnapshotSchedule>().snapshots().take_note().find("is not whole"),
            std::string::npos);
  EXPECT_EQ(ranks[0].controllers().get<train::SnapshotSchedule>().snapshots().take_note(), "");
  for (int step = 7; step <= 10; ++step) advance();
  EXPECT_FALSE(ranks[0].controllers().get<train::SnapshotSchedule>().snapshots().is_lost());
  EXPECT_EQ(newest(), 9);
}

}  // namespace
}  // namespace heddle::session
