// Some steps of a small model on one rank of any layout, for weights, losses and logits that must not depend on it.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "tests/runtime/tiny_run.h"

namespace heddle::parity {

struct ExactSetting {
  Dtype dtype = Dtype::f32;
  std::string backend = "reference";
  bool exact = true;
  std::string topology = "plain";  // of the experts' exchange
  std::string schedule = "1f1b";
  std::string layout = "even";  // of the layers on the stages
  int depths = 0;               // of multi-token prediction
  bool tied = false;            // embeddings
  int experts = 8;
  int top_k = 3;
  int steps = 20;
  int microbatches = 8;  // of one sequence, in the whole batch
};

model::ModelConfig exact_model(const ExactSetting& setting);
plan::Plan exact_plan(const plan::Degrees& mesh, const ExactSetting& setting);

/// All masters after the steps, by name; and, with those weights, the loss of one more batch as "evaluate" and the
/// logits of one sequence as "predict". Of a layout on thread ranks.
std::map<std::string, std::vector<double>> train_on_threads(const plan::Degrees& mesh, const ExactSetting& setting,
                                                            std::vector<int> node_of = {});

/// The same on the ranks of a world: all of it on rank 0, nothing elsewhere.
std::map<std::string, std::vector<double>> train_on(comm::World& world, const plan::Degrees& mesh,
                                                    const ExactSetting& setting);

}  // namespace heddle::parity
