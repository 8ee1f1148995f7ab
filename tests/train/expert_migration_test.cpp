// Experts that change their homes while a model is trained: every bit stays as it is without, wherever they live,
// on meshes with copies of experts, slices of them and stages; runs go on from checkpoints in the same and in other
// layouts; and what is foretold not to pay isn't done.
#include "heddle/train/controllers/expert_migration.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <chrono>
#include <cstring>
#include <map>
#include <set>
#include <thread>

#include "heddle/train/audit/weight_digest.h"
#include "heddle/train/evaluate.h"
#include "heddle/train/logits.h"
#include "heddle/train/saved/segment.h"
#include "heddle/train/trainer_checkpoint.h"
#include "tests/support/scratch_folder.h"
#include "tests/train/rank_trainers.h"
#include "tests/train/small_run.h"

namespace heddle::train {
namespace {

using Set = std::vector<std::string>;

// Products are so slow that every row counts.
TrainerOptions options_with_expert_migration(const Set& set) {
  config::RunConfig c = small_config(8);
  c.model.n_routed_experts = 8;
  c.model.initializer_range = 0.2;
  c.train.warmup_steps = 0;
  c.train.learning_rate = 3e-3;
  c.plan.device.product_rate = 1e-3;
  return trainer_options_of(with_keys(c, set));
}

Set joined(Set set, const Set& more) {
  set.insert(set.end(), more.begin(), more.end());
  return set;
}

std::vector<int> two_a_node(const TrainerOptions& options) {
  std::vector<int> nodes;
  for (int r = 0; r < options.plan.ranks(); ++r) nodes.push_back(r / 2);
  return nodes;
}

/// Ids of few kinds, other ones in every third step: few experts are hot, and then others are.
StepResult step_expert_migration(RankTrainers& ranks) {
  const int64_t number = ranks[0].steps_done();
  std::vector<std::vector<int32_t>> ids =
      random_sequences(ranks[0], ranks[0].sequences_per_step(), static_cast<uint64_t>(number));
  for (std::vector<int32_t>& sequence : ids) {
    for (int32_t& id : sequence) id = id % 3 + static_cast<int32_t>(5 * (number / 3));
  }
  return ranks.step(ids);
}

/// Whole tensors by name, bit for bit.
std::map<std::string, std::vector<std::byte>> whole_state(RankTrainers& ranks) {
  std::map<std::string, std::vector<std::byte>> whole;
  for (int r = 0; r < ranks.size(); ++r) {
    for (const StateTensor& tensor : ranks[r].state()) {
      const auto size = static_cast<size_t>(size_of(tensor.dtype));
      std::vector<std::byte>& bytes = whole[tensor.name];
      bytes.resize(static_cast<size_t>(tensor.elements()) * size);
      if (!tensor.is_here()) continue;
      const StateElements held(tensor);
      for (const model::Extent& run : ranks[r].held_extents(tensor)) {
        std::memcpy(bytes.data() + static_cast<size_t>(run.whole) * size,
                    held.view().as<std::byte>() + static_cast<size_t>(run.local) * size,
                    static_cast<size_t>(run.count) * size);
      }
    }
  }
  return whole;
}

struct Outcome {
  std::vector<double> losses;
  double held_out = 0;
  std::vector<float> logits;
  std::map<std::string, std::vector<std::byte>> state;
  std::string digest;
  int64_t moved = 0;  // experts, in all
};

constexpr int kStepsExpertMigration = 6;

Outcome train_with(const Set& set) {
  const TrainerOptions options = options_with_expert_migration(set);
  RankTrainers ranks(options, two_a_node(options));
  ranks.each([](Trainer& trainer) { trainer.initialise(); });
  Outcome outcome;
  for (int i = 0; i < kStepsExpertMigration; ++i) {
    const StepResult result = step_expert_migration(ranks);
    outcome.losses.push_back(result.next_token_loss());
    outcome.moved += static_cast<int64_t>(result.figures.get(observe::figures::kExpertsMoved, 0));
  }
  const std::vector<std::vector<int32_t>> other = random_sequences(ranks[0], 4, 77);
  ranks.each([&](Trainer& trainer) {
    const double loss = evaluate(trainer, other);
    const std::vector<float> logits = next_logits(trainer, std::vector<int32_t>{1, 2, 3, 4});
    WeightDigest digest(trainer);
    const std::string taken = digest.take();
    if (!trainer.ranks().leads()) return;
    outcome.held_out = loss;
    outcome.logits = logits;
    outcome.digest = taken;
  });
  outcome.state = whole_state(ranks);
  return outcome;
}

struct ExpertMigrationCase {
  const char* name;
  Set set;
  std::string every = "1";  // steps
  friend std::ostream& operator<<(std::ostream& out, const ExpertMigrationCase& c) { return out << c.name; }
};

/// A copy takes as long as 250 rows in each microbatch, an expert that moves as 290 once for three steps of eight.
const Set kSlowLinks{"mesh.dp=4",
                     "mesh.ep=4",
                     "train.global_batch=32",
                     "device.product_rate=1",
                     "parallel.within_rate=0.008",
                     "parallel.across_rate=0.008"};

const ExpertMigrationCase kCasesExpertMigration[] = {
    {"ep4", {"mesh.dp=4", "mesh.ep=4"}},
    {"two_copies_of_experts", {"mesh.dp=4", "mesh.ep=2"}},
    {"copies_first", {"mesh.dp=4", "mesh.ep=2", "mesh.expert_order=edp-ep-etp"}},
    {"three_copies", {"mesh.dp=6", "mesh.ep=2", "train.global_batch=12"}},
    {"stages", {"mesh.dp=2", "mesh.ep=2", "mesh.pp=2"}},
    {"floats", {"mesh.dp=4", "mesh.ep=4", "device.dtype=f32"}},
    {"doubles", {"mesh.dp=4", "mesh.ep=4", "device.dtype=f64", "device.backend=reference"}},
    {"split_masters", {"mesh.dp=4", "mesh.ep=2", "memory.master=split"}},
    {"split_alone", {"mesh.dp=4", "mesh.ep=4", "memory.master=split", "device.pack_weights=false"}},
    {"moments_in_fp8", {"mesh.dp=4", "mesh.ep=2", "train.moments=fp8"}},
    {"unpacked", {"mesh.dp=4", "mesh.ep=4", "device.pack_weights=false"}},
    {"average", {"mesh.dp=4", "mesh.ep=2", "train.average_decay=0.9"}},
    {"muon", {"mesh.dp=4", "mesh.ep=2", "train.optimizer=muon"}},
    {"further_tokens", {"mesh.dp=4", "mesh.ep=4", "model.num_nextn_predict_layers=1"}},
    {"recompute", {"mesh.dp=4", "mesh.ep=4", "memory.recompute=full"}},
    {"copies_by_counts", joined(kSlowLinks, {"moe.replicas=1"}), "3"},
    {"copies_by_history", joined(kSlowLinks, {"moe.replicas=1", "moe.replicas_from=history"}), "3"},
    {"adapters", {"mesh.dp=4", "mesh.ep=4", "lora.rank=2", "lora.targets=all"}},
    {"adapters_with_copies", joined(kSlowLinks, {"lora.rank=2", "lora.targets=all", "moe.replicas=1"}), "3"},
    {"adapters_of_two_copies", {"mesh.dp=4", "mesh.ep=2", "lora.rank=2", "lora.targets=all"}},
    {"adapters_of_slices",
     {"mesh.dp=4", "mesh.ep=2", "mesh.etp=2", "lora.rank=2", "lora.targets=all", "train.exact_sums=false"}},
    {"gradients_on_host", {"mesh.dp=4", "mesh.ep=4", "memory.gradients=all"}},
};

class ExpertMigration : public testing::TestWithParam<ExpertMigrationCase> {};

TEST_P(ExpertMigration, KeepsEveryBit) {
  const Set set = joined({"device.dtype=bf16", "train.exact_sums=true", "parallel.exchange=plain"}, GetParam().set);
  const Outcome off = train_with(set);
  const Outcome on = train_with(joined(set, {"moe.migrate_every=" + GetParam().every}));
  EXPECT_EQ(off.moved, 0);
  EXPECT_GE(on.moved, 2) << "nothing has moved";
  EXPECT_EQ(on.losses, off.losses);
  EXPECT_EQ(on.held_out, off.held_out);
  EXPECT_EQ(on.logits, off.logits);
  EXPECT_EQ(on.digest, off.digest);
  ASSERT_EQ(on.state.size(), off.state.size());
  for (const auto& [name, bytes] : on.state) EXPECT_TRUE(bytes == off.state.at(name)) << name;
}

INSTANTIATE_TEST_SUITE_P(Meshes, ExpertMigration, testing::ValuesIn(kCasesExpertMigration),
                         [](const auto& info) { return std::string(info.param.name); });

void start_expert_migration(RankTrainers& ranks) {
  ranks.each([](Trainer& trainer) { trainer.initialise(); });
}

TEST(ExpertMigrationRun, GoesOnFromACheckpoint) {
  const Set base{"device.dtype=bf16", "train.exact_sums=true"};
  const TrainerOptions options =
      options_with_expert_migration(joined(base, {"mesh.dp=4", "mesh.ep=4", "moe.migrate_every=1"}));
  const ScratchFolder folder;
  RankTrainers first(options, two_a_node(options));
  start_expert_migration(first);
  for (int i = 0; i < 3; ++i) step_expert_migration(first);
  EXPECT_FALSE(placements_in(first[0].controllers()).layers.empty()) << "nothing has moved";
  EXPECT_EQ(placements_in(first[0].controllers()), placements_in(first[3].controllers()));
  first.each([&](Trainer& trainer) { save_trainer(folder.path().string(), {}, trainer); });
  const ExpertPlacements homes = placements_in(first[0].controllers());
  std::vector<double> losses;
  for (int i = 0; i < 3; ++i) losses.push_back(step_expert_migration(first).next_token_loss());
  const auto state = whole_state(first);

  const std::vector<Set> layouts{{"mesh.dp=4", "mesh.ep=4", "moe.migrate_every=1"},
                                 {"mesh.dp=4", "mesh.ep=2", "moe.migrate_every=1"},
                                 {"mesh.dp=2", "mesh.pp=2", "mesh.ep=2", "moe.migrate_every=2"},
                                 {"mesh.dp=4", "mesh.ep=4"},
                                 {"mesh.dp=1"}};
  for (const Set& layout : layouts) {
    const TrainerOptions other = options_with_expert_migration(joined(base, layout));
    RankTrainers second(other, two_a_node(other));
    start_expert_migration(second);
    second.each([&](Trainer& trainer) { load_trainer(open_checkpoint(folder.path().string()), trainer); });
    const bool same = &layout == &layouts[0];
    EXPECT_EQ(placements_in(second[0].controllers()), same ? homes : ExpertPlacements()) << layout.back();
    for (int i = 0; i < 3; ++i)
      EXPECT_EQ(step_expert_migration(second).next_token_loss(), losses[static_cast<size_t>(i)]);
    EXPECT_TRUE(whole_state(second) == state) << layout[0] << " " << layout.back();
    if (same) {
      EXPECT_EQ(placements_in(second[0].controllers()), placements_in(first[0].controllers()));
    }
  }
}

// Copies are slow here, so that steps and moves would overtake what doesn't wait for them.
TEST(ExpertMigrationRun, CopiesInMemoryStandByExperts) {
  const Set base{"moe.migrate_every=1", "train.snapshot_every=1", "train.exact_sums=true"};
  const std::vector<Set> layouts{
      {"mesh.dp=4", "mesh.ep=4"},
      {"mesh.dp=4", "mesh.ep=2", "device.dtype=bf16"},
      {"mesh.dp=4", "mesh.ep=2", "device.dtype=bf16", "memory.master=split"},
      {"mesh.dp=4", "mesh.ep=2", "device.dtype=bf16", "memory.master=split", "train.moments=fp8"},
      {"mesh.dp=2", "mesh.pp=2", "mesh.ep=2", "train.average_decay=0.9"}};
  for (const Set& layout : layouts) {
    const ScratchFolder folder;
    const std::string memory = folder / "memory";
    ::mkdir(memory.c_str(), 0700);
    TrainerOptions options = options_with_expert_migration(joined(base, layout));
    options.snapshots = {memory, "0123456789abcdef0123456789abcdef", 1};
    RankTrainers ranks(options, two_a_node(options));
    start_expert_migration(ranks);
    ranks.each([](Trainer& trainer) {
      const int copies = trainer.lowered().program.listing_of(trainer.ranks().rank(), ir::Purpose::snapshot);
      trainer.executor().watch([copies](const device::Launch& launch) {
        if (launch.listing == copies) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      });
    });
    std::map<std::string, std::vector<std::byte>> before;
    int moved_between = 0;
    for (int i = 0; i < 6; ++i) {
      before = whole_state(ranks);
      const ExpertPlacements homes = placements_in(ranks[0].controllers());
      const ControllerStates states = ranks[0].controllers().states();
      step_expert_migration(ranks);
      if (i == 0) continue;
      const auto found = newest_in_memory({memory}, true);
      ASSERT_TRUE(found) << layout.back() << ", step " << i;
      EXPECT_EQ(found->state().step, i);
      EXPECT_EQ(found->state().controllers.contains("expert_homes"), !homes.layers.empty());
      EXPECT_EQ(found->state().controllers, states);
      moved_between += !homes.layers.empty() && !(placements_in(ranks[0].controllers()) == homes);
      ASSERT_EQ(found->tensors().size(), before.size());
      for (const SavedTensor& tensor : found->tensors()) {
        std::vector<std::byte> bytes(before.at(tensor.name).size());
        tensor.copy(0, tensor.elements(), bytes.data());
        EXPECT_TRUE(bytes == before.at(tensor.name)) << tensor.name << " of step " << i << ", " << layout.back();
      }
    }
    EXPECT_GT(moved_between, 0) << layout.back();
    ranks.each([](Trainer& trainer) { trainer.executor().watch({}); });

    // They go on in the same layout and in another, as if nothing had happened.
    const double next = step_expert_migration(ranks).next_token_loss();
    Set alone = base;
    for (const std::string& key : layout) {
      if (!key.starts_with("mesh.")) alone.push_back(key);
    }
    for (const Set& other : {joined(base, layout), alone}) {
      const auto again = options_with_expert_migration(joined(other, {"train.snapshot_every=0"}));
      RankTrainers second(again, two_a_node(again));
      start_expert_migration(second);
      second.each([&](Trainer& trainer) { load_trainer(*newest_in_memory({memory}, true, nullptr, 6), trainer); });
      EXPECT_EQ(step_expert_migration(second).next_token_loss(), next)
          << layout.back() << ", " << second.size() << " ranks";
    }
  }
}

// No checkpoint holds the frozen weights; they come anew, at home, where they have moved, too.
TEST(ExpertMigrationRun, GoesBackAndOnWithAdapters) {
  const TrainerOptions options =
      options_with_expert_migration({"device.dtype=bf16", "train.exact_sums=true", "mesh.dp=4", "mesh.ep=4",
                                     "moe.migrate_every=1", "lora.rank=2", "lora.targets=all"});
  const ScratchFolder folder;
  RankTrainers first(options, two_a_node(options)), second(options, two_a_node(options));
  for (RankTrainers* ranks : {&first, &second}) start_expert_migration(*ranks);
  for (int i = 0; i < 2; ++i) step_expert_migration(first);
  first.each([&](Trainer& trainer) { save_trainer(folder.path().string(), {}, trainer); });
  const ExpertPlacements homes = placements_in(first[0].controllers());
  std::vector<double> losses;
  for (int i = 0; i < 3; ++i) losses.push_back(step_expert_migration(first).next_token_loss());
  EXPECT_FALSE(placements_in(first[0].controllers()) == homes) << "nothing has moved since";
  const auto state = whole_state(first);
  for (RankTrainers* ranks : {&first, &second}) {
    ranks->each([&](Trainer& trainer) { load_trainer(open_checkpoint(folder.path().string()), trainer); });
    EXPECT_EQ(placements_in((*ranks)[0].controllers()), ExpertPlacements());
    for (const double loss : losses) EXPECT_EQ(step_expert_migration(*ranks).next_token_loss(), loss);
    EXPECT_TRUE(whole_state(*ranks) == state);
  }
}

TEST(ExpertMigrationRun, MovesNothingThatDoesNotPay) {
  const Set slow{"mesh.dp=4", "mesh.ep=4", "device.dtype=bf16", "moe.migrate_every=1"};
  const auto moved_with = [&](const Set& more) {
    const TrainerOptions options = options_with_expert_migration(joined(slow, more));
    RankTrainers ranks(options, two_a_node(options));
    start_expert_migration(ranks);
    MoveFigures all;
    for (int i = 0; i < 3; ++i) {
      const observe::Figures told = step_expert_migration(ranks).figures;
      all.moved += static_cast<int64_t>(told.get(observe::figures::kMovesMade, 0));
      all.not_worth += static_cast<int64_t>(told.get(observe::figures::kMovesNotWorth, 0));
      all.bytes += told.get(observe::figures::kExpertsMovedBytes, 0);
    }
    return all;
  };
  const MoveFigures pays = moved_with({});
  EXPECT_GT(pays.moved, 0);
  EXPECT_GT(pays.bytes, 0);
  const MoveFigures not_worth =
      moved_with({"device.product_rate=1e6", "parallel.within_rate=1e-3", "parallel.across_rate=1e-3"});
  EXPECT_EQ(not_worth.moved, 0);
  EXPECT_GT(not_worth.not_worth, 0);
  EXPECT_EQ(moved_with({"moe.migrate_every=50"}).moved, 0) << "it is not time yet";
}

TEST(ExpertMigrationRun, SaysWhatItDoesNotGoWith) {
  const std::map<std::string, std::string> refused{
      {"memory.optimizer=host", "memory.optimizer = \"host\""},
      {"memory.weights=all", "memory.weights on the host"},
      {"moe.capacity_factor=1.25", "moe.capacity_factor"},
      {"parallel.schedule=dual_pipe", "parallel.schedule"},
      {"parallel.exchange=node", "parallel.exchange = \"plain\" goes with it"}};
  for (const auto& [set, why] : refused) {
    try {
      const std::string pp = why == "parallel.schedule" ? "mesh.pp=2" : "mesh.pp=1";
      const TrainerOptions options =
          options_with_expert_migration({"mesh.dp=4", "mesh.ep=4", "moe.migrate_every=1", "train.exact_sums=true",
                                         "train.global_batch=16", pp, set});
      plan::check(options.model, options.plan);
      ADD_FAILURE() << set << " is taken";
    } catch (const ConfigError& error) {
      EXPECT_NE(std::string(error.what()).find(why), std::string::npos) << set << ": " << error.what();
    }
  }
}

}  // namespace
}  // namespace heddle::train
