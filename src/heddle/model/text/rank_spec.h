// The specification of a pipeline rank's listing, besides the model.
#pragma once

#include <vector>

#include "heddle/ir/axes.h"
#include "heddle/ir/program.h"
#include "heddle/model/context.h"
#include "heddle/model/dispatcher.h"
#include "heddle/model/objective.h"
#include "heddle/model/stage_share.h"
#include "heddle/model/step_shape.h"

namespace heddle::model {

/// The source or destination of a share's hidden states: another chunk of the same rank, or a pipeline rank `step`
/// away. `edge` is the pipeline stage that makes them, −1 without any.
struct Neighbour {
  int step = 0;
  int64_t edge = -1;
};

/// The shares of one pipeline rank, its chunks, and the shape of its microbatches.
struct RankSpec : StepShape {
  struct Chunk {
    StageShare share;
    Neighbour from, to;
    ir::Chunk microbatches;
  };
  int rank = 0;  // of the pipeline
  std::vector<Chunk> chunks;
  Objective objective;
  Context context = Context::gather;
  int context_inner = 1;  // of `hybrid` and `double_ring`: the neighbours of a run, more than 1, fewer than all
  ir::Coordinates mesh;   // its degrees; > 1 writes that axis' collectives out
  ir::Purpose purpose = ir::Purpose::train;
  Dispatcher exchange;
  double flops_per_us = 500e3;  // of a rank, by which copies of experts are weighed
  bool exact_sums = false;      // rows of one source for one expert are never parted
  double qk_clip = 0;           // the logit above which heads are clipped; 0: none is
};

}  // namespace heddle::model
