// The share of a batch's sequences that a rank's step takes: its microbatches, and the factor of each term of the
// loss.
#pragma once

#include <cstdint>
#include <vector>

#include "heddle/device/inputs.h"
#include "heddle/model/model_config.h"
#include "heddle/plan/mesh.h"
#include "heddle/plan/plan.h"
#include "heddle/train/step/sequences.h"

namespace heddle::train {

/// Ids of a sequence of training: inputs, the label after the last, and those of the depths.
int64_t sequence_tokens(const model::ModelConfig& model, const plan::Plan& plan);

/// Microbatches of a training step of so many sequences. InternalError where the plan has no such step.
int microbatches_of(int64_t sequences, const plan::Plan& plan);

/// The factor of each term of the loss, over the whole batch: its masked targets left out and the others by their
/// weights, or over its pairs. The same on all ranks.
std::vector<double> scales_of(const Sequences& sequences, const model::ModelConfig& model, const plan::Plan& plan);

/// The inputs of so many microbatches that a listing takes, with the factors of the loss. Microbatch m of the rank
/// at `place` is the (m·dp + d)-th of the whole batch. Here d is its rank among those of the data. Where the
/// sequences end before, it is padding.
device::Inputs batch_of(const Sequences& sequences, int microbatches, const model::ModelConfig& model,
                        const plan::Plan& plan, const ir::Listing& listing, const ir::Coordinates& place);

}  // namespace heddle::train
