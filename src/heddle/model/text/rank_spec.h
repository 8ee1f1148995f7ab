// The specification of a pipeline rank's listing, besides the model.
#pragma once

#include <string>
#include <vector>

#include "heddle/base/dtype.h"
#include "heddle/ir/axes.h"
#include "heddle/ir/program.h"
#include "heddle/model/context.h"
#include "heddle/model/dispatcher.h"
#include "heddle/model/objective.h"
#include "heddle/model/stage_share.h"

namespace heddle::model {

/// The source or destination of a share's hidden states: another chunk of the same rank, or a pipeline rank `step`
/// away. `edge` is the pipeline stage that makes them, −1 without any.
struct Neighbour {
  int step = 0;
  int64_t edge = -1;
};

/// The shares of one pipeline rank, its chunks, and the shape of its microbatches.
struct RankSpec {
  struct Chunk {
    StageShare share;
    Neighbour from, to;
    ir::Chunk microbatches;
  };
  int rank = 0;  // of the pipeline
  std::vector<Chunk> chunks;
  int64_t sequences = 1;          // a microbatch of a tp × cp group
  int64_t sequence_length = 128;  // whole
  int64_t cached_sequences = 0;   // that the cache has room for; `decode` has one row for each
  bool documents_apart = false;   // no token sees beyond its document, which begins where the batch says
  int64_t document_end = -1;      // or behind this id
  bool weighs_labels = false;     // labels count by weights of the batch
  Objective objective;
  Context context = Context::gather;
  Dtype dtype = Dtype::f32;  // the compute type X
  ir::Coordinates mesh;      // its degrees; > 1 writes that axis' collectives out
  ir::Purpose purpose = ir::Purpose::train;
  Dispatcher exchange;
  double flops_per_us = 500e3;  // of a rank, by which copies of experts are weighed
  bool exact_sums = false;      // rows of one source for one expert are never parted
  double qk_clip = 0;           // the logit above which heads are clipped; 0: none is
};

}  // namespace heddle::model
