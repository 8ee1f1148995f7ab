// A rank's batch out of the sequences of the whole one: its microbatches, and the factor of each term of the loss.
#pragma once

#include <cstdint>
#include <vector>

#include "heddle/device/batch.h"
#include "heddle/model/model_config.h"
#include "heddle/plan/mesh.h"
#include "heddle/plan/plan.h"
#include "heddle/train/step/sequences.h"

namespace heddle::train {

/// Ids of a sequence of training: inputs, the label after the last, and those of the depths.
int64_t sequence_tokens(const model::ModelConfig& model, const plan::Plan& plan);

/// Microbatch m of the rank at `place` is the (m·dp + d)-th of the whole batch, d being its rank among those of the
/// data; where the sequences end before, it is padding. Factors are over the whole batch, its masked targets left
/// out and the others by their weights, or over its pairs, so the same on all ranks.
device::Batch batch_of(const Sequences& sequences, int microbatches, const model::ModelConfig& model,
                       const plan::Plan& plan, const ir::Coordinates& place);

}  // namespace heddle::train
