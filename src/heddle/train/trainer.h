// A model in training on one rank: its step program with the state it works on, one step at a time.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "heddle/train/learning_rate.h"
#include "heddle/train/parameters.h"

namespace heddle::train {

struct TrainerOptions {
  model::ModelConfig model;
  /// evaluates, predicts and packed_bytes are set by the trainer.
  plan::Plan plan;
  std::string backend = "host";
  bool pack_weights = true;
  int threads = 1;
  int64_t memory_bytes = 0;  // capacity of the arena; 0: what the machine has
  LearningRate learning_rate;
  uint64_t seed = 0;
};

/// What one step gave. Losses are means: of labels, of sequences (auxiliary), of tokens (z), before weights.
struct StepResult {
  double next_token_loss = 0;
  double sequence_aux_loss = 0;      // summed over layers
  double z_loss = 0;                 // summed over layers
  std::vector<double> depth_losses;  // multi-token prediction, by depth
  double gradient_norm = 0;          // before clipping
  double learning_rate = 0;
  int64_t tokens = 0;
  double seconds = 0;
  double flops = 0;  // matrix products of the step
  int64_t peak_live_bytes = 0, reserved_bytes = 0;
  std::vector<int> load_layers;              // MoE layers
  std::vector<std::vector<double>> load_LE;  // rows routed to each expert
  /// Highest over mean load of the worst layer; 1 when there is no MoE layer.
  double imbalance() const;
};

class Trainer {
 public:
  /// ConfigError when model and plan don't fit; OutOfMemory when the state doesn't.
  explicit Trainer(TrainerOptions options);
  ~Trainer();

  /// Starts the parameters from the seed, at step 0.
  void initialise();
  /// One step on `sequences` (microbatches × sequences of a microbatch), each of sequence_length + 1 + depths ids.
  /// A loss or gradient that is not finite raises Error naming the first op that made it; parameters are then as
  /// before the step.
  StepResult step(const std::vector<std::vector<int32_t>>& sequences);
  /// Mean next-token loss of sequences of the same form; any number of them.
  double evaluate(const std::vector<std::vector<int32_t>>& sequences);
  /// Logits of the token after `tokens` (at most sequence_length of them).
  std::vector<float> next_logits(std::span<const int32_t> tokens);

  int64_t steps_done() const { return steps_done_; }
  void set_steps_done(int64_t steps) { steps_done_ = steps; }
  /// State in the arena; after writing it call weights_changed().
  std::vector<StateTensor> state();
  void weights_changed() { executor_->make_weights(); }

  int64_t sequence_tokens() const;
  int64_t sequences_per_step() const;
  const plan::Lowered& lowered() const { return lowered_; }
  const TrainerOptions& options() const { return options_; }
  runtime::Executor& executor() { return *executor_; }
  /// Matrix-product FLOPs of a training step, by the op definitions.
  double flops_per_step() const { return flops_per_step_; }
  model::ParameterCount parameter_count() const;

 private:
  device::Batch batch_of(const std::vector<std::vector<int32_t>>& sequences, int microbatches) const;
  double statistic(int stage, const std::string& name) const;
  [[noreturn]] void explain_not_finite(const device::Batch& batch, const StepResult& result);

  TrainerOptions options_;
  plan::Lowered lowered_;
  std::unique_ptr<runtime::Executor> executor_;
  int64_t steps_done_ = 0;
  double flops_per_step_ = 0;
};

}  // namespace heddle::train
