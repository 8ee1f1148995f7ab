// State on the host is never held by the device as a whole: not as a run begins, nor as a checkpoint is read; and a
// checkpoint of any home and form of masters goes on in any other.
#include <gtest/gtest.h>

#include "heddle/base/numbers/split_float.h"
#include "heddle/train/trainer_checkpoint.h"
#include "tests/support/scratch_folder.h"
#include "tests/train/rank_trainers.h"
#include "tests/train/small_run.h"

namespace heddle::train {
namespace {

TrainerOptions options_of_state_at_start(const std::string& home, const std::string& master,
                                         const std::string& moments = "fp32") {
  config::RunConfig c = small_config(4, 2);
  c.model.initializer_range = 0.2;
  c.train.warmup_steps = 0;
  return trainer_options_of(
      with_keys(c, {"device.dtype=bf16", "device.pack_weights=false", "memory.optimizer=" + home,
                    "memory.master=" + master, "train.moments=" + moments}));
}

const std::vector<std::pair<std::string, std::string>> kAll{
    {"device", "full"},  {"swap", "full"},  {"mapped", "full"},  {"host", "full"},
    {"device", "split"}, {"swap", "split"}, {"mapped", "split"}, {"host", "split"}};

TEST(StateAtStart, TheDeviceNeverHoldsItAll) {
  for (const auto& [home, master] : kAll) {
    const ScratchFolder folder;
    TrainerOptions options = options_of_state_at_start(home, master);
    options.memory_bytes = 0;  // nothing is foretold: the arena shows what was taken
    Trainer trainer(options);
    trainer.initialise();
    const int64_t started = trainer.executor().walk().storage().reserved_bytes();
    trainer.step(random_sequences(trainer, trainer.sequences_per_step(), 1));
    EXPECT_LE(started, trainer.executor().walk().storage().reserved_bytes()) << home << " " << master;
    save_trainer(folder.path().string(), {}, trainer);
    Trainer other(options);
    load_trainer(open_checkpoint(folder.path().string()), other);
    EXPECT_LE(other.executor().walk().storage().reserved_bytes(), started) << home << " " << master;
  }
}

TEST(StateAtStart, GoesOnInAnyOther) {
  const auto next = [](Trainer& trainer, uint64_t step) {
    return trainer.step(random_sequences(trainer, trainer.sequences_per_step(), step)).next_token_loss();
  };
  for (const char* moments : {"fp32", "bf16", "fp8"}) {
    Trainer plain(options_of_state_at_start("device", "full", moments));
    plain.initialise();
    const ScratchFolder first;
    next(plain, 1);
    next(plain, 2);
    save_trainer(first.path().string(), {}, plain);
    std::vector<double> losses{next(plain, 3), next(plain, 4)};
    std::string from = first.path().string();
    const ScratchFolder folder;
    for (const auto& [home, master] : kAll) {
      const std::string which = fmt::format("{} {} {}", home, master, moments);
      Trainer trainer(options_of_state_at_start(home, master, moments));
      load_trainer(open_checkpoint(from), trainer);
      from = folder / (home + master);  // the next goes on from this one
      save_trainer(from, {}, trainer);
      EXPECT_EQ(next(trainer, 3), losses[0]) << which;
      EXPECT_EQ(next(trainer, 4), losses[1]) << which;
    }
  }
}

}  // namespace
}  // namespace heddle::train
