// Training steps inside of a program of one's own: plan, lower, run. See docs/howto/embed.md.
#include <cstdio>

#include "heddle/config/run_config.h"
#include "heddle/runtime/predict.h"
#include "heddle/train/run_config_plan.h"
#include "heddle/train/trainer.h"

int main(int count, char** arguments) try {
  if (count != 2) throw heddle::ConfigError("usage: embed CONFIG.toml");
  const auto config = heddle::config::read_run_config(arguments[1]);

  // Planned and lowered, a step is a text whose memory is known before anything is allocated.
  const auto lowered = heddle::plan::lower(config.model, heddle::train::plan_of(config));
  const auto memory = heddle::runtime::predict_memory(lowered.program, 0, config.device.backend);
  std::printf("%zu ops, %.1f MB\n", lowered.program.listings[0].ops.size(), 1e-6 * memory.reserved_bytes);

  // The trainer lowers the same and runs it, here on tokens that count up.
  heddle::train::Trainer trainer(heddle::train::trainer_options_of(config));
  trainer.initialise();
  std::vector<std::vector<int32_t>> sequences(trainer.sequences_per_step());
  for (auto& sequence : sequences)
    for (int64_t t = 0; t < trainer.sequence_tokens(); ++t) sequence.push_back(t % config.model.vocab_size);
  for (int step = 1; step <= 3; ++step)
    std::printf("step %d: loss %.4f\n", step, trainer.step(sequences).next_token_loss());
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "embed: %s\n", error.what());
  return 1;
}
