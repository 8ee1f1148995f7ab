// A small model in fp64 whose step takes eight sequences, in any layout.
#pragma once

#include "heddle/train/trainer.h"
#include "tests/support/tiny_models.h"

namespace heddle::train {

inline constexpr int64_t kSequences = 8;

inline TrainerOptions small_options(plan::Degrees mesh, int64_t sequences) {
  TrainerOptions o;
  o.model = test::small_model();
  o.plan.mesh = mesh;
  o.plan.sequences = sequences;
  o.plan.microbatches = static_cast<int>(kSequences / sequences / mesh.dp);
  o.plan.sequence_length = 16;
  o.plan.dtype = Dtype::f64;
  o.backend = "reference";
  o.memory_bytes = 64 << 20;
  o.length = {100};
  o.learning_rate = {.shape = LearningRate::Shape::constant, .peak = 5e-3};
  o.seed = 5;
  return o;
}

}  // namespace heddle::train
