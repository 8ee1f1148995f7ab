// State in parts: shards that ranks write beside each other, copies in memory that outlive them. Each comes back
// bit for bit in any layout, and nothing that was damaged, cut, swapped or mixed ever comes back at all.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <fstream>
#include <thread>

#include "heddle/base/files/output_file.h"
#include "heddle/base/random.h"
#include "heddle/train/controllers/snapshot_schedule.h"
#include "heddle/train/saved/segment.h"
#include "heddle/train/trainer_checkpoint.h"
#include "tests/support/scratch_folder.h"
#include "tests/train/rank_trainers.h"
#include "tests/train/small_options.h"

namespace heddle::train {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kSequencesAtOnceSaved = 2;

std::string bytes_in(const std::string& path) { return read_file(path, int64_t{1} << 30); }
void overwrite_saved(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

// The bytes of every tensor, by name.
std::map<std::string, std::vector<uint8_t>> contents(const Checkpoint& checkpoint) {
  std::map<std::string, std::vector<uint8_t>> all;
  for (const SavedTensor& tensor : checkpoint.tensors()) {
    std::vector<uint8_t>& bytes = all[tensor.name];
    bytes.resize(static_cast<size_t>(tensor.elements() * formats::size_of(tensor.type)));
    tensor.copy(0, tensor.elements(), bytes.data());
  }
  return all;
}

void advance(RankTrainers& ranks, int steps) {
  for (int i = 0; i < steps; ++i) {
    const auto step = static_cast<uint64_t>(ranks[0].steps_done());
    ranks.step(random_sequences(ranks[0], kSequences, step));
  }
}

struct OwnFolder {
  explicit OwnFolder(const ScratchFolder& in) : path(in / "memory") { ::mkdir(path.c_str(), 0700); }
  std::string path;
};

TrainerOptions with_memory(plan::Degrees mesh, const OwnFolder& memory, int64_t every = 1) {
  TrainerOptions options = small_options(mesh, kSequencesAtOnceSaved);
  options.plan.snapshot_every = every;
  options.snapshots = {memory.path, "0123456789abcdef0123456789abcdef", 3};
  return options;
}

TEST(Runs, SayWhatExtentsSay) {
  const RandomKey key(7);
  uint64_t at = 0;
  const auto draw = [&](uint64_t below) { return static_cast<int64_t>(key.bits(at++) % below); };
  for (int trial = 0; trial < 300; ++trial) {
    std::vector<model::Extent> mine, others;
    int64_t whole = 0, local = 0, other_local = 0;
    const int64_t regular = 1 + draw(5);
    for (int64_t i = 0, count = 1 + draw(40); i < count; ++i) {
      const int64_t size = draw(4) == 0 ? 1 + draw(7) : regular;
      (i % 2 == 0 ? mine : others).push_back({i % 2 == 0 ? local : other_local, whole, size});
      (i % 2 == 0 ? local : other_local) += size;
      whole += size;
    }
    const std::vector<Runs> runs = runs_of(mine), rest = runs_of(others);
    EXPECT_LE(runs.size(), mine.size());
    EXPECT_TRUE(cover({&runs, &rest}, whole));
    EXPECT_FALSE(cover({&runs}, whole + 1));
    EXPECT_FALSE(cover({&runs, &rest, &runs}, whole));
    const int64_t first = draw(static_cast<uint64_t>(whole)),
                  last = first + draw(static_cast<uint64_t>(whole - first) + 1);
    std::vector<int64_t> found(static_cast<size_t>(whole), -1), expected = found;
    each_run(runs, first, last, [&](int64_t from, int64_t to, int64_t n) {
      for (int64_t k = 0; k < n; ++k) found[static_cast<size_t>(to + k)] = from + k;
    });
    for (const model::Extent& e : mine) {
      for (int64_t k = 0; k < e.count; ++k) {
        if (e.whole + k >= first && e.whole + k < last) expected[static_cast<size_t>(e.whole + k)] = e.local + k;
      }
    }
    EXPECT_EQ(found, expected) << "trial " << trial;
  }
  const std::vector<Runs> far{{0, int64_t{1} << 62, 1, int64_t{1} << 62, 0}}, twice{{0, 2, 1, 3, 0}};
  EXPECT_FALSE(cover({&far}, 8));
  EXPECT_FALSE(cover({&twice}, 6));
}

TEST(Shards, AreWrittenByEachRankAndReadByAnyLayout) {
  const ScratchFolder folder;
  RankTrainers four(small_options({.dp = 2, .pp = 2}, kSequencesAtOnceSaved)),
      one(small_options({}, kSequencesAtOnceSaved));
  for (RankTrainers* ranks : {&four, &one}) ranks->each([](Trainer& trainer) { trainer.initialise(); });
  advance(four, 2);
  four.each([&](Trainer& trainer) { save_trainer(folder / "a", {}, trainer); });
  EXPECT_EQ(bytes_in(folder / "a/latest"), "step-000002\n");
  for (int r = 0; r < 4; ++r) {
    struct stat is {};
    ASSERT_EQ(::stat((folder / fmt::format("a/step-000002/shard-{:05}.safetensors", r)).c_str(), &is), 0);
    EXPECT_EQ(is.st_mode & 077, 0u);
  }
  const Checkpoint sharded(folder / "a/step-000002");
  one.each([&](Trainer& trainer) { load_trainer(sharded, trainer); });
  one.each([&](Trainer& trainer) { save_trainer(folder / "b", {}, trainer); });
  EXPECT_TRUE(fs::exists(folder / "b/step-000002/model.safetensors"));
  EXPECT_EQ(contents(Checkpoint(folder / "b/step-000002")), contents(sharded));
  RankTrainers other(small_options({.tp = 2, .dp = 2}, kSequencesAtOnceSaved));
  other.each([&](Trainer& trainer) { load_trainer(sharded, trainer); });
  other.each([&](Trainer& trainer) { save_trainer(folder / "c", {}, trainer); });
  EXPECT_EQ(contents(Checkpoint(folder / "c/step-000002")), contents(sharded));
}

// Flips, cuts, additions, shards of other ranks, steps and runs: each is refused, and the step before is taken.
TEST(Shards, DamagedOnesNeverLoad) {
  const ScratchFolder folder;
  RankTrainers ranks(small_options({.dp = 2, .pp = 2}, kSequencesAtOnceSaved));
  TrainerOptions elsewhere = small_options({.dp = 2, .pp = 2}, kSequencesAtOnceSaved);
  elsewhere.seed = 9;
  RankTrainers stranger(elsewhere);
  for (RankTrainers* each : {&ranks, &stranger}) {
    each->each([](Trainer& trainer) { trainer.initialise(); });
    for (int i = 0; i < 2; ++i) {
      advance(*each, 1);
      each->each([&](Trainer& trainer) { save_trainer(folder / (each == &ranks ? "own" : "other"), {}, trainer); });
    }
  }
  const std::string path = folder / "own/step-000002";
  const auto expected = contents(Checkpoint(path)), before = contents(Checkpoint(folder / "own/step-000001"));
  const RandomKey key(11);
  uint64_t at = 0;
  const auto draw = [&](uint64_t below) { return key.bits(at++) % below; };
  int refused = 0, harmless = 0;
  for (int trial = 0; trial < 400; ++trial) {
    const uint64_t number = draw(5);
    const std::string name = number == 4 ? "state.json" : fmt::format("shard-{:05}.safetensors", number);
    const std::string whole = bytes_in(path + "/" + name);
    std::string damaged = whole;
    switch (draw(7)) {
      case 0:
      case 1: {
        const uint64_t bit = draw(8 * whole.size());
        damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << (bit % 8)));
        break;
      }
      case 2: damaged.resize(draw(whole.size())); break;
      case 3: damaged.append(1 + draw(9), '\0'); break;
      case 4: damaged = bytes_in(folder / "own/step-000001/" + name); break;    // a stale one
      case 5: damaged = bytes_in(folder / "other/step-000002/" + name); break;  // of another run
      default:
        damaged = bytes_in(path + fmt::format("/shard-{:05}.safetensors", (number + 1 + draw(3)) % 4));
        break;
    }
    if (damaged == whole) continue;
    overwrite_saved(path + "/" + name, damaged);
    try {
      EXPECT_EQ(contents(Checkpoint(path)), expected) << name;  // a flipped space of the manifest says nothing else
      EXPECT_EQ(name, "state.json");
      ++harmless;
    } catch (const ConfigError& error) {
      EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos);
      std::vector<std::string> reasons;
      EXPECT_EQ(contents(open_checkpoint(folder / "own", &reasons)), before);
      EXPECT_EQ(reasons.size(), 1u);
      ++refused;
    }
    overwrite_saved(path + "/" + name, whole);
  }
  EXPECT_GT(refused, 300);
  EXPECT_LT(harmless, 20);
  EXPECT_EQ(contents(Checkpoint(path)), expected);
}

TEST(Snapshots, ComeBackInAnyLayoutAndChangeNoBit) {
  const ScratchFolder folder;
  const OwnFolder memory(folder);
  RankTrainers ranks(with_memory({.dp = 2, .pp = 2}, memory)),
      plain(small_options({.dp = 2, .pp = 2}, kSequencesAtOnceSaved));
  for (RankTrainers* each : {&ranks, &plain}) each->each([](Trainer& trainer) { trainer.initialise(); });
  for (int step = 1; step <= 5; ++step) {
    advance(ranks, 1);
    advance(plain, 1);
    plain.each([&](Trainer& trainer) { save_trainer(folder / "disk", {}, trainer, 9); });
    if (step < 2) continue;
    const auto found = newest_in_memory({memory.path}, true);
    ASSERT_TRUE(found) << "step " << step;
    EXPECT_EQ(found->state().step, step - 1);
    EXPECT_EQ(found->state().generation, 3);
    const Checkpoint disk(folder / fmt::format("disk/step-{:06}", step - 1));
    EXPECT_EQ(contents(*found), contents(disk)) << "step " << step;
  }
  RankTrainers from_memory(small_options({.tp = 2}, kSequencesAtOnceSaved)),
      from_disk(small_options({.tp = 2}, kSequencesAtOnceSaved));
  const auto newest = newest_in_memory({memory.path}, true);
  const Checkpoint disk(folder / "disk/step-000004");
  from_memory.each([&](Trainer& trainer) { load_trainer(*newest, trainer); });
  from_disk.each([&](Trainer& trainer) { load_trainer(disk, trainer); });
  for (RankTrainers* each : {&from_memory, &from_disk}) {
    advance(*each, 2);
    each->each([&](Trainer& trainer) { save_trainer(folder / (each == &from_disk ? "d" : "m"), {}, trainer); });
  }
  EXPECT_EQ(contents(open_checkpoint(folder / "m")), contents(open_checkpoint(folder / "d")));
}

// The state on the host, split masters, moments in fewer bits: what lies in memory is what a checkpoint would hold.
TEST(Snapshots, OfEveryHomeAndForm) {
  for (const plan::StateResidency home : {plan::StateResidency::device, plan::StateResidency::swap,
                                          plan::StateResidency::mapped, plan::StateResidency::host}) {
    using enum plan::MasterForm;
    using passes::Moments;
    for (const auto& [form, moments] : {std::pair{full, Moments::fp32},
                                        {split, Moments::fp32},
                                        {full, Moments::fp8},
                                        {split, Moments::bf16},
                                        {split, Moments::fp8}}) {
      const ScratchFolder folder;
      const OwnFolder memory(folder);
      TrainerOptions options = with_memory({.dp = 2}, memory);
      options.plan.dtype = Dtype::bf16;
      options.backend = "host";
      options.plan.device.pack_weights = false;
      options.plan.memory.optimizer = home;
      options.plan.memory.master = form;
      options.plan.update.moments = moments;
      RankTrainers ranks(options);
      ranks.each([](Trainer& trainer) { trainer.initialise(); });
      advance(ranks, 2);
      ranks.each([&](Trainer& trainer) { save_trainer(folder / "disk", {}, trainer); });
      advance(ranks, 1);
      const auto found = newest_in_memory({memory.path}, true);
      const std::string which = fmt::format("{} {} {}", word_of(home), word_of(form), word_of(moments));
      ASSERT_TRUE(found) << which;
      EXPECT_EQ(contents(*found), contents(open_checkpoint(folder / "disk"))) << which;
    }
  }
}

TEST(Snapshots, DamagedOnesNeverLoad) {
  const ScratchFolder folder;
  const OwnFolder memory(folder);
  std::map<int64_t, std::map<std::string, std::vector<uint8_t>>> expected;
  {
    RankTrainers ranks(with_memory({.dp = 2}, memory));
    ranks.each([](Trainer& trainer) { trainer.initialise(); });
    for (int step = 1; step <= 3; ++step) {
      advance(ranks, 1);
      if (step > 1) expected[step - 1] = contents(*newest_in_memory({memory.path}, true));
    }
  }
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(memory.path)) {
    if (entry.path().extension() != ".hold-0" && entry.path().extension() != ".hold-1")
      names.push_back(entry.path());
  }
  const RandomKey key(13);
  uint64_t at = 0;
  const auto draw = [&](uint64_t below) { return key.bits(at++) % below; };
  int passed_over = 0, older = 0, none = 0;
  for (int trial = 0; trial < 400; ++trial) {
    const std::string& path = names[draw(names.size())];
    const std::string whole = bytes_in(path);
    std::string damaged = whole;
    switch (draw(4)) {
      case 0: damaged.resize(draw(whole.size())); break;
      case 1: damaged = bytes_in(names[draw(names.size())]); break;
      default: {
        const uint64_t bit = draw(8 * whole.size());
        damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << (bit % 8)));
      }
    }
    if (damaged == whole) continue;
    overwrite_saved(path, damaged);
    const auto found = newest_in_memory({memory.path}, true);
    if (found) {
      ASSERT_TRUE(expected.contains(found->state().step)) << path;
      EXPECT_EQ(contents(*found), expected[found->state().step]) << path;
      (found->state().step == 2 ? passed_over : older) += 1;
    } else {
      ++none;
    }
    overwrite_saved(path, whole);
  }
  EXPECT_GT(older, 20);
  EXPECT_GT(none, 20);
  EXPECT_GT(passed_over, 20);
  EXPECT_EQ(newest_in_memory({memory.path}, true)->state().step, 2);
}

// Who looked at the run's folder and ended there leaves nothing in memory.
TEST(Snapshots, OfAStartThatDidNoStepGo) {
  const ScratchFolder folder;
  const OwnFolder memory(folder);
  {
    RankTrainers ranks(with_memory({.dp = 2}, memory));
    ranks.each([](Trainer& trainer) { trainer.initialise(); });
    EXPECT_FALSE(fs::is_empty(memory.path));
  }
  EXPECT_FALSE(fs::exists(memory.path));
}

TEST(Snapshots, LeaveTheSetThatSomebodyReads) {
  const ScratchFolder folder;
  const OwnFolder memory(folder);
  RankTrainers ranks(with_memory({.dp = 2}, memory));
  ranks.each([](Trainer& trainer) { trainer.initialise(); });
  advance(ranks, 3);  // of steps 1 and 2
  const SegmentFiles files = segments_in(memory.path).at(0);
  const int set = Segment(files).set_of(1);
  ASSERT_GE(set, 0);
  {
    const auto hold = FileHold::take(files.hold(set), FileHold::How::shared);
    ASSERT_TRUE(hold);
    advance(ranks, 2);
    EXPECT_EQ(newest_in_memory({memory.path}, true)->state().step, 2);
    EXPECT_EQ(Segment(files).set_of(1), set);
  }
  advance(ranks, 1);
  EXPECT_EQ(newest_in_memory({memory.path}, true)->state().step, 5);
}

// The first op of the step beside which it is made waits for it here.
TEST(Snapshots, CountAsSoonAsTheyAreCopied) {
  const ScratchFolder folder;
  const OwnFolder memory(folder);
  RankTrainers ranks(with_memory({}, memory));
  ranks.each([](Trainer& trainer) { trainer.initialise(); });
  advance(ranks, 2);
  const SegmentFiles files = segments_in(memory.path).at(0);
  const int training = ranks[0].lowered().program.listing_of(0, ir::Purpose::train);
  std::atomic<bool> waits{true}, counts{false};
  ranks[0].executor().watch([&](const device::Launch& launch) {
    if (launch.listing != training || !waits.exchange(false)) return;
    for (int i = 0; i < 2000 && !counts; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      counts = Segment(files).set_of(2) >= 0;
    }
  });
  advance(ranks, 1);
  EXPECT_TRUE(counts);
  ranks[0].executor().watch({});
}

TEST(Snapshots, FolderOfTheirOwnGoesWithTheTrainer) {
  const auto count = [] { return std::distance(fs::directory_iterator("/dev/shm"), fs::directory_iterator()); };
  const auto before = count();
  {
    TrainerOptions options = small_options({}, kSequencesAtOnceSaved);
    options.plan.snapshot_every = 1;
    Trainer trainer(options);
    EXPECT_NE(trainer.controllers().find<SnapshotSchedule>(), nullptr);
  }
  EXPECT_LE(count(), before);
}

}  // namespace
}  // namespace heddle::train
