// Losses of sequences under a trainer's weights, which stay as they are. All ranks call these together, with the
// same sequences; the result is the same on every rank.
#pragma once

#include <vector>

#include "heddle/train/step/sequences.h"
#include "heddle/train/trainer.h"

namespace heddle::train {

/// Mean next-token loss; any number of sequences.
double evaluate(Trainer& trainer, const Sequences& sequences);
/// Returns −Σ ln p of the labels that count, for each of at most dp sequences. A microbatch must be one sequence.
std::vector<double> score(Trainer& trainer, const Sequences& sequences);
/// −Σ ln p of each sequence's labels, where pairs of them are learnt from; any number of sequences.
std::vector<double> sequence_losses(Trainer& trainer, const Sequences& sequences);

}  // namespace heddle::train
