// How far a step moves the routers' balancing biases, where the configuration leaves it open: in proportion to the
// step's share of the run.
//
// Early in a run most of a router's input is one vector that all tokens share. It gives some experts high scores
// for every token, and the biases must travel as far as those scores lie apart before the load can be even: a
// distance that does not depend on the number of steps. At DeepSeek-V3's 0.001 a step that takes some 300 steps,
// nothing in a run of 200,000 and half of one of 640. So the biases may travel kTravel within a run of any length:
// a step moves them by kTravel ÷ steps, never by less than the report's rate, which long runs come to, nor by more
// than kMost, at which the choice would jump to and fro between experts. When the learning rate falls, so does it:
// by then the load is even, and what moves at the end is only noise to the weights that settle (the report, too,
// holds the biases still at last).
#pragma once

#include <algorithm>
#include <optional>

#include "heddle/config/run_length.h"

namespace heddle::config {

struct BiasRate {
  // model/keys.cpp says them too, to those who ask for the key's default.
  static constexpr double kTravel = 6.4, kLeast = 1e-3, kMost = 2e-2;

  std::optional<double> given;  // model.bias_update_rate

  /// Of the step that follows `done`; `left`: how much of its peak the learning rate has then.
  double at(const RunLength& length, const RunProgress& done, double left = 1) const {
    return given ? *given : left * std::clamp(kTravel / length.expected_steps(done), kLeast, kMost);
  }
};

}  // namespace heddle::config
