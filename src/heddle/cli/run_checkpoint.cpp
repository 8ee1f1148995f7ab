#include "heddle/cli/run_checkpoint.h"

#include "heddle/base/error.h"

namespace heddle::cli {

std::string save_run(const RunFolder& folder, const train::RunConfig& config,
                     const std::map<std::string, std::string>& data, train::Trainer& trainer) {
  train::CheckpointState state;
  state.consumed_sequences = trainer.steps_done() * config.train.global_batch;
  state.seed = static_cast<uint64_t>(config.seed);
  state.data = data;
  state.layout = {{"ranks", plan::text_of(trainer.options().plan.mesh)},
                  {"backend", config.device.backend},
                  {"dtype", std::string(name_of(trainer.options().plan.dtype))},
                  {"global_batch", fmt::format("{}", config.train.global_batch)},
                  {"microbatch", fmt::format("{}", config.train.microbatch)},
                  {"sequence_length", fmt::format("{}", config.train.sequence_length)}};
  return train::save_trainer(folder.checkpoints(), std::move(state), trainer,
                             static_cast<int>(config.train.keep_checkpoints));
}

}  // namespace heddle::cli
