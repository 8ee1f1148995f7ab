// The end of the step: gradient norm, clipping, AdamW for every trained parameter, new kernel weights, and the
// update of the balancing biases.
#pragma once

#include "heddle/model/parameter.h"

namespace heddle::passes {

struct UpdateOptions {
  double beta1 = 0.9, beta2 = 0.95, epsilon = 1e-8, weight_decay = 0.1;
  double clip_norm = 1.0;         // 0: off
  double bias_update_rate = 0.0;  // of the routers' balancing biases; 0: off
  bool fuse_copy = true;          // adamw writes the weight's rounded copy itself
};

/// Adds for each trained parameter its moments "m.NAME", "v.NAME", its master "master.NAME" (unless the weight itself
/// is wide and in rows, then it is its own master), and the ops of the end phase. The norm of all gradients before
/// clipping is the statistic "grad_norm". A parameter whose gradient nothing makes is InternalError.
void update(model::StageText& text, const UpdateOptions& options);

}  // namespace heddle::passes
