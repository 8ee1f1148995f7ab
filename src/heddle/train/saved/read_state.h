// Elements of the state of a run, out of a checkpoint whose moments may be of another type (train.moments).
#pragma once

#include "heddle/train/checkpoint.h"
#include "heddle/train/parameters.h"

namespace heddle::train {

/// True if a run that keeps `tensor` as `dtype` can begin from a saved tensor of this type: a moment is rounded or
/// widened, all else is as it was.
bool reads_from(formats::StoredType saved, std::string_view tensor, Dtype dtype);

/// Elements first … first + count − 1 of the tensor, in its type. A first moment that is a byte is in units of the
/// second's root (ops/moment_byte.h), so both are read to convert it. ConfigError where the checkpoint lacks one,
/// or the types are no numbers.
void read_state(const Checkpoint& from, const StateTensor& tensor, int64_t first, int64_t count, void* into);

}  // namespace heddle::train
