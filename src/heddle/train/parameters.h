// The values of a stage that last from step to step: how they begin, and what a checkpoint keeps of them.
#pragma once

#include <string>
#include <vector>

#include "heddle/model/model_config.h"
#include "heddle/plan/plan.h"
#include "heddle/runtime/executor.h"

namespace heddle::train {

/// A tensor of the model's state under its layout-free name: "NAME" is the master (fp32 or wider) of a parameter,
/// "m.NAME" and "v.NAME" its moments. Points into the arena; only to be touched between steps.
struct StateTensor {
  std::string name;
  device::TensorView view;
  const model::Parameter* parameter = nullptr;
  bool is_master = false;
};

/// All of a one-rank program's state, in the order of the parameters. The rotary table is not part of it.
std::vector<StateTensor> state_tensors(const plan::Lowered& lowered, runtime::Executor& executor);

/// Starts every parameter from the seed (each element a function of seed, name and index alone), moments at zero,
/// and makes the weights.
void initialise(const model::ModelConfig& config, const plan::Lowered& lowered, runtime::Executor& executor,
                uint64_t seed);

/// Fills the rotary table, for any number of ranks; the rest is up to the caller.
void fill_rope_table(const model::ModelConfig& config, const plan::Lowered& lowered, runtime::Executor& executor);

}  // namespace heddle::train
