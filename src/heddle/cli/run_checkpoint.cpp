#include "heddle/cli/run_checkpoint.h"

#include "heddle/base/error.h"

namespace heddle::cli {

std::vector<train::LogicalTensor> logical_state(train::Trainer& trainer) {
  std::vector<train::LogicalTensor> tensors;
  for (const train::StateTensor& state : trainer.state()) {
    train::LogicalTensor& tensor = tensors.emplace_back();
    tensor.name = state.name;
    tensor.dtype = state.view.dtype;
    for (int i = 0; i < state.view.rank; ++i) tensor.shape.push_back(state.view.dim(i));
    tensor.pieces.emplace_back(static_cast<uint8_t*>(state.view.data), static_cast<size_t>(tensor.size_bytes()));
  }
  return tensors;
}

std::string save_run(const RunFolder& folder, const train::RunConfig& config,
                     const std::map<std::string, std::string>& data, train::Trainer& trainer) {
  train::CheckpointState state;
  state.step = trainer.steps_done();
  state.consumed_sequences = trainer.steps_done() * config.train.global_batch;
  state.seed = static_cast<uint64_t>(config.seed);
  state.model = config.model;
  state.data = data;
  state.layout = {{"backend", config.device.backend},
                  {"dtype", std::string(name_of(trainer.options().plan.dtype))},
                  {"global_batch", fmt::format("{}", config.train.global_batch)},
                  {"microbatch", fmt::format("{}", config.train.microbatch)},
                  {"sequence_length", fmt::format("{}", config.train.sequence_length)}};
  return train::save_checkpoint(folder.checkpoints(), state, logical_state(trainer),
                                static_cast<int>(config.train.keep_checkpoints));
}

void restore_run(const train::Checkpoint& checkpoint, train::Trainer& trainer) {
  checkpoint.load_into(trainer.options().model, logical_state(trainer));
  train::fill_rope_table(trainer.options().model, trainer.lowered(), trainer.executor());
  trainer.weights_changed();
  trainer.set_steps_done(checkpoint.state().step);
}

}  // namespace heddle::cli
