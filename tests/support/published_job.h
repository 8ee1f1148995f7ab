// A job that trains a published model on a known accelerator.
#pragma once

#include "heddle/cost/accelerator.h"
#include "heddle/model/shapes/shape_presets.h"
#include "heddle/search/estimate.h"

namespace heddle::search {

inline Job job_of(const char* model, const char* device, const plan::Degrees& mesh, int microbatch,
                  int global_batch, int chunks = 1) {
  Job j;
  j.shape = *model::find_shape(model);
  j.device = *cost::accelerator_named(device);
  j.mesh = mesh;
  j.chunks = chunks;
  j.microbatch = microbatch;
  j.global_batch = global_batch;
  return j;
}

}  // namespace heddle::search
