// Reference values for another implementation of a model: the loss of some sequences, their logits, and the
// gradient of every parameter under its released name.
#pragma once

#include <string>

#include "heddle/train/trainer.h"

namespace heddle::train {

/// Runs one training step of a trainer on one rank, and writes a safetensors file, in f64 where the trainer
/// computes in it, else in f32. The parameters are then no longer those of the logits.
///
///   `loss`        F64, what is differentiated.
///   `loss.TERM`   F64, its terms, unweighted: next_token, depth.1 …, sequence_aux, z, index.
///   `logits`      [B, S, V], of the next token.
///   `grad.NAME`   Of the loss, in the shape of the released tensor.
///
/// Each sequence has as many ids as the trainer's sequences, of which the last has no label. Returns the step's
/// result.
StepResult dump_model(const std::string& path, Trainer& trainer, const Sequences& sequences);

}  // namespace heddle::train
