// The tokens of a step as its listings see them: their number, documents and labels, and the type of the weights.
#pragma once

#include <cstdint>

#include "heddle/base/dtype.h"

namespace heddle::model {

struct StepShape {
  int64_t sequences = 1;          // a microbatch, shared by the ranks of tp × cp
  int64_t sequence_length = 128;  // whole
  bool documents_apart = false;   // no token sees beyond its document, which begins where the batch says
  int64_t document_end = -1;      // or behind this id
  bool weighs_labels = false;     // labels count by weights of the batch
  /// Sequences that a cache has room for; more than 0 adds the programs that fill it and go on from it, with a row
  /// of `decode` for each. On one rank, with weights in rows.
  int64_t cached_sequences = 0;
  Dtype dtype = Dtype::f32;  // the compute type X, of weights and activations
};

}  // namespace heddle::model
