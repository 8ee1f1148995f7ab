// The facts of a schedule that a search needs without making it: formulas of the ranks, the chunks a rank and the
// microbatches. An outline stands beside its generator. A formula that it lacks is computed from the orders that
// the generator makes (schedule/figures), so an empty outline will do.
#pragma once

#include <string_view>

#include "heddle/schedule/timing.h"

namespace heddle::schedule {

struct PipelineSize {
  int ranks = 1;
  int chunks = 1;  // stages a rank
  double microbatches = 1;
};

struct Outline {
  /// Synchronous bubble of a step on equal ranks. `rank`: one microbatch through all layers of a rank.
  double (*bubble)(const PipelineSize& size, const StageTimes& rank) = nullptr;
  /// Microbatches whose activations of a rank's layers that rank holds at once; a part of one where chunks are
  /// interleaved.
  double (*in_flight)(const PipelineSize& size, int rank) = nullptr;
  /// Microbatches of a rank, in a schedule with pairs, beside which no other one's backward runs, in warm-up and
  /// cool-down.
  double (*unpaired)(const PipelineSize& size) = nullptr;
  /// The reason why so many ranks, chunks and microbatches can't be, or don't follow the formulas; "" when they do.
  std::string_view (*misfit)(const PipelineSize& size) = nullptr;

  /// It is of use on a single rank.
  bool alone = false;
  /// Its pairs hide nearly all of their exchange, as published for DualPipe; else as much as the software says.
  bool hides_exchange = false;
  /// The reason why a search leaves it out unless asked for it by name; "": it doesn't.
  std::string_view passed_over = "";
};

}  // namespace heddle::schedule
