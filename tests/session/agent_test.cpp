// The agent of a host: what ranks ask for goes to disk, so does the newest step when they have gone, and another
// host's memory holds it too.
#include "heddle/session/agent/agent.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <mutex>
#include <nlohmann/json.hpp>
#include <numeric>
#include <thread>

#include "heddle/base/clock.h"
#include "heddle/base/files/fence.h"
#include "heddle/base/files/output_file.h"
#include "heddle/base/files/random_id.h"
#include "heddle/session/agent/run_memory.h"
#include "heddle/session/agent/shared_segments.h"
#include "heddle/train/controllers/snapshot_schedule.h"
#include "heddle/train/trainer_checkpoint.h"
#include "tests/support/scratch_folder.h"
#include "tests/train/rank_trainers.h"
#include "tests/train/small_options.h"

namespace heddle::session {
namespace {

namespace fs = std::filesystem;

constexpr const char* kToken = "a token of this job alone";
constexpr double kPatience_s = 60;

class RunningAgent {
 public:
  explicit RunningAgent(AgentOptions options)
      : thread_([this, options] {
          run_agent(options, stop_, [this](const std::string& line) {
            const std::lock_guard lock(mutex_);
            lines_.push_back(line);
          });
        }) {}
  ~RunningAgent() { end(); }

  void end() {
    stop_ = true;
    if (thread_.joinable()) thread_.join();
  }

  /// The first line with this in it; "" when none came.
  std::string await(const std::string& text) {
    for (const double start_s = now_s(); now_s() - start_s < kPatience_s;
         std::this_thread::sleep_for(std::chrono::milliseconds(10))) {
      const std::lock_guard lock(mutex_);
      for (const std::string& line : lines_) {
        if (line.find(text) != std::string::npos) return line;
      }
    }
    return "";
  }
  std::string folder() {
    const std::string ready = await("ready port ");
    return ready.substr(ready.rfind(' ') + 1);
  }
  std::string port() {
    const std::string ready = await("ready port ");
    return ready.substr(11, ready.find(' ', 11) - 11);
  }

 private:
  std::atomic<bool> stop_{false};
  std::mutex mutex_;
  std::vector<std::string> lines_;
  std::thread thread_;
};

std::map<std::string, std::vector<uint8_t>> contents(const train::Checkpoint& checkpoint) {
  std::map<std::string, std::vector<uint8_t>> all;
  for (const train::SavedTensor& tensor : checkpoint.tensors()) {
    std::vector<uint8_t>& bytes = all[tensor.name];
    bytes.resize(static_cast<size_t>(tensor.elements() * formats::size_of(tensor.type)));
    tensor.copy(0, tensor.elements(), bytes.data());
  }
  return all;
}

train::TrainerOptions options_in(const std::string& folder) {
  train::TrainerOptions options = train::small_options({.dp = 2, .ep = 2}, 2);
  options.plan.parallel.exchange.migrate_every = 1000;
  options.plan.snapshot_every = 1;
  options.snapshots = {folder, "0123456789abcdef0123456789abcdef", 1};
  return options;
}

/// Begins, with two experts of each layer on each other's rank.
void begin(train::RankTrainers& ranks) {
  const model::ModelConfig& model = ranks[0].options().model;
  std::vector<int32_t> swapped(static_cast<size_t>(model.n_routed_experts));
  std::iota(swapped.begin(), swapped.end(), 0);
  std::swap(swapped.front(), swapped[swapped.size() / 2]);
  nlohmann::json layers;
  for (int layer = model.first_k_dense_replace; layer < model.num_hidden_layers; ++layer)
    layers.push_back({{"layer", layer}, {"homes", swapped}});
  const std::string homes = nlohmann::json{{"holders", 2}, {"layers", layers}}.dump();
  ranks.each([&](train::Trainer& trainer) {
    trainer.initialise();
    trainer.controllers().restore({{"expert_homes", homes}});
  });
}

void advance(train::RankTrainers& ranks) {
  const auto step = static_cast<uint64_t>(ranks[0].steps_done());
  ranks.step(train::random_sequences(ranks[0], train::kSequences, step));
}

TEST(Agent, PersistsWhatIsAskedForAndWhatTheDeadLeave) {
  const ScratchFolder scratch;
  const std::string run = scratch / "run";
  RunningAgent agent({run, "", "", ""});
  const std::string folder = agent.folder();
  ASSERT_TRUE(fs::is_directory(folder));
  std::map<std::string, std::vector<uint8_t>> second, fourth;
  {
    train::RankTrainers ranks(options_in(folder));
    begin(ranks);
    ranks.each([](train::Trainer& trainer) {
      trainer.controllers().get<train::SnapshotSchedule>().set_note([&trainer] {
        return train::SnapshotNote{{}, trainer.steps_done() == 2};
      });
    });
    for (int step = 1; step <= 5; ++step) {
      advance(ranks);
      if (step == 3) {
        EXPECT_NE(agent.await("step 2 persisted"), "");
        second = contents(*train::newest_in_memory({folder}, true, nullptr, 2));
      }
    }
    fourth = contents(*train::newest_in_memory({folder}, true, nullptr, 4));
  }  // without a word
  EXPECT_NE(agent.await("step 4 persisted"), "");
  const std::string checkpoints = RunFolder{run}.checkpoints();
  EXPECT_EQ(contents(train::Checkpoint(checkpoints + "/step-000002")), second);
  const train::Checkpoint last = train::open_checkpoint(checkpoints);
  EXPECT_EQ(last.state().step, 4);
  EXPECT_TRUE(last.state().controllers.contains("expert_homes"));
  EXPECT_EQ(contents(last), fourth);
  agent.end();
  EXPECT_FALSE(fs::exists(folder));  // the disk has all
}

TEST(Agent, OfAJobThatIsOverWritesNoMore) {
  const ScratchFolder scratch;
  const std::string run = scratch / "run";
  RunningAgent agent({run, "", "", ""});
  const std::string folder = agent.folder();
  {
    train::RankTrainers ranks(options_in(folder));
    begin(ranks);
    advance(ranks);
    advance(ranks);
    raise_fence({2, random_id(), run});
  }
  EXPECT_NE(agent.await("generation 1 is over"), "");
  EXPECT_EQ(train::newest_step(RunFolder{run}.checkpoints()), -1);
  agent.end();
  fs::remove_all(folder);
}

TEST(Agent, GivesEachStepToItsPartner) {
  const ScratchFolder scratch;
  RunningAgent far({scratch / "far", "", "lo", kToken});
  RunningAgent near({scratch / "near", "127.0.0.1:" + far.port(), "", kToken});
  const std::string folder = near.folder(), partner = far.folder() + "/partner";
  std::map<std::string, std::vector<uint8_t>> held;
  {
    train::RankTrainers ranks(options_in(folder));
    begin(ranks);
    advance(ranks);
    advance(ranks);
    held = contents(*train::newest_in_memory({folder}, true));
    std::optional<train::Checkpoint> given;
    for (const double start_s = now_s(); !given && now_s() - start_s < kPatience_s;
         std::this_thread::sleep_for(std::chrono::milliseconds(20))) {
      given = train::newest_in_memory({partner}, true);
    }
    ASSERT_TRUE(given);
    EXPECT_EQ(given->state().step, 1);
    EXPECT_EQ(contents(*given), held);
  }
  near.end();
  far.end();
  fs::remove_all(fs::path(partner).parent_path());
}

// What ranks of another host find of an agent: its port, and a folder that they can't reach.
struct Elsewhere {
  Elsewhere(const std::string& run, const std::string& port) : folder{run}, here(memory_folder(random_id())) {
    write_file(here + kAgentToken, kToken);
    for (const AgentEntry& entry : agent_entries(folder)) fs::remove(entry.path);
    write_file(run + kAgents + "/here", here + "\n\n");
    write_file(run + kAgents + "/there", fmt::format("/dev/shm/heddle-{}\n127.0.0.1:{}\n", random_id(), port));
  }
  ~Elsewhere() { fs::remove_all(here); }
  std::optional<train::Checkpoint> newest(bool sums = true, std::vector<std::string>* refused = nullptr) const {
    return train::newest_in_memory(memory_folders(folder), sums, refused, 0, 0, shared_segments(folder, refused));
  }
  RunFolder folder;
  std::string here;
};

TEST(Agent, LendsToRanksElsewhereWhatTheyRead) {
  for (const plan::MasterForm form : {plan::MasterForm::full, plan::MasterForm::split}) {
    const ScratchFolder scratch;
    const std::string run = scratch / "run";
    RunningAgent agent({run, "", "lo", kToken});
    const std::string memory = agent.folder();
    train::TrainerOptions options = options_in(memory);
    options.plan.dtype = Dtype::bf16;
    options.backend = "host";
    options.plan.device.pack_weights = false;
    options.plan.memory.master = form;
    train::RankTrainers ranks(options);
    begin(ranks);
    advance(ranks);
    advance(ranks);
    advance(ranks);
    const auto held = contents(*train::newest_in_memory({memory}, true));
    const Elsewhere elsewhere(run, agent.port());
    const std::optional<train::Checkpoint> remote = elsewhere.newest();
    ASSERT_TRUE(remote);
    EXPECT_EQ(remote->state().step, 2);
    EXPECT_NE(remote->path().find("(the memory of 127.0.0.1:" + agent.port()), std::string::npos) << remote->path();
    EXPECT_EQ(contents(*remote), held);
    // A bit that falls over: whoever looks at all bytes takes the step before, who does not is told as it comes.
    const std::optional<train::Checkpoint> open = elsewhere.newest(false);
    const train::Segment segment(train::segments_in(memory).at(1));
    const int set = segment.set_of(2);
    const auto at = static_cast<std::streamoff>(segment.index().values.at(0).at.at(static_cast<size_t>(set)));
    {
      std::fstream file(segment.files().data(), std::ios::in | std::ios::out | std::ios::binary);
      const auto place = static_cast<std::streamoff>(fs::file_size(segment.files().data())) -
                         static_cast<std::streamoff>(std::max<int64_t>(1, segment.index().bytes)) + at;
      file.seekg(place);
      const char byte = static_cast<char>(file.get() ^ 4);
      file.seekp(place);
      file.put(byte);
    }
    std::vector<std::string> refused;
    const std::optional<train::Checkpoint> before = elsewhere.newest(true, &refused);
    ASSERT_TRUE(before);
    EXPECT_EQ(before->state().step, 1);
    ASSERT_FALSE(refused.empty());
    EXPECT_NE(refused.front().find("has other bytes than were copied"), std::string::npos) << refused.front();
    ASSERT_TRUE(open);
    EXPECT_THROW(contents(*open), SystemError);
    agent.end();
    fs::remove_all(memory);
  }
}

TEST(Agent, WantsATokenOfSomeLength) {
  const ScratchFolder scratch;
  const std::atomic<bool> stop{true};
  EXPECT_THROW(run_agent({scratch / "run", "", "lo", "short"}, stop, [](const std::string&) {}), ConfigError);
}

}  // namespace
}  // namespace heddle::session
