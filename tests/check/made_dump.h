// Dumps made by Heddle's own programs of several ranks, right or with a fault put into them.
#pragma once

#include <functional>
#include <string>

#include "check/parts.h"
#include "heddle/plan/plan.h"

namespace heddle::test {

struct Made {
  model::ModelConfig model;
  plan::Degrees mesh;
  Dtype dtype = Dtype::f32;
  int microbatches = 2;
  int64_t sequences = 1, sequence_length = 16;
  bool masks = false;  // some labels do not count
  check::LossMean loss = check::LossMean::tokens;
  bool optimizer = false;
  uint64_t seed = 1;
  bool forward = true;
  /// The factor by which a rank's part counts in what rank `here` holds of a gradient after reduction.
  std::function<double(const std::string& name, const ir::Coordinates& here, const check::Part& part)> factor;
  /// Changes the program of the ranks.
  std::function<void(plan::Lowered&)> edit;
  /// Which records a rank writes; all unless given.
  std::function<bool(const check::Record&)> keeps;
  /// Changes what a rank is about to write.
  std::function<void(check::Record&, const ir::Coordinates& here)> change;
};

/// Runs the step on threads and writes what the ranks hold, in the format of docs/howto/check.md.
void write_dump(const std::string& folder, const Made& made);

/// Number `number` of the layouts and models that tests draw: of four ranks at most, or of eight.
Made drawn(uint64_t number, Dtype dtype, int most_ranks = 4);

}  // namespace heddle::test
