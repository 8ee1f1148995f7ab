// The distance by which a step moves the routers' balancing biases, where the configuration leaves it open. It is
// in proportion to the step's share of the run.
//
// Early in a run most of a router's input is one vector that all tokens share. It gives some experts high scores
// for every token. Before the load can be even, the biases must travel as far as those scores lie apart: a distance
// that does not depend on the number of steps. At DeepSeek-V3's 0.001 a step that takes some 300 steps, nothing in
// a run of 200,000 and half of one of 640. So the biases may travel kTravel within a run of any length. A step
// moves them by kTravel ÷ steps. It never moves them by less than the report's rate, which long runs come to. Nor
// does it by more than kMost, at which the choice would jump to and fro between experts. The distance falls with
// the learning rate. By then the load is even, and what moves at the end is only noise to the weights that settle
// (the report, too, holds the biases still at last).
#pragma once

#include <algorithm>
#include <optional>

#include "heddle/config/run_length.h"

namespace heddle::config {

struct BiasRate {
  // model/keys.cpp says them too, to those who ask for the key's default.
  static constexpr double kTravel = 6.4, kLeast = 1e-3, kMost = 2e-2;

  std::optional<double> given;  // model.bias_update_rate

  /// The rate of the step that follows `done`; `left`: how much of its peak the learning rate has then.
  double at(const RunLength& length, const RunProgress& done, double left = 1) const {
    return given ? *given : left * std::clamp(kTravel / length.expected_steps(done), kLeast, kMost);
  }
};

}  // namespace heddle::config
