// Twenty steps of a small model with exact sums, on one rank of any layout, for weights that must not depend on it.
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
};

model::ModelConfig exact_model();
plan::Plan exact_plan(const plan::Degrees& mesh, const ExactSetting& setting);
/// Fills the rank and runs it; every rank of the layout calls it.
void run_exact(test::RankRun& run, const plan::Plan& plan);

/// All masters after the steps, by name, of a layout on thread ranks.
std::map<std::string, std::vector<double>> train_on_threads(const plan::Degrees& mesh, const ExactSetting& setting,
                                                            std::vector<int> node_of = {});

/// The same on the ranks of a world: whole on rank 0, empty elsewhere.
std::map<std::string, std::vector<double>> train_on(comm::World& world, const plan::Degrees& mesh,
                                                    const ExactSetting& setting);

}  // namespace heddle::parity
