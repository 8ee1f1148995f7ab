// The keys that a row of queries sees, on the device: kernels/seen_keys.h says what the numbers mean.
#pragma once

#include "heddle/kernels/cuda/attention/attention_kernels.h"
#include "heddle/kernels/cuda/language.h"

namespace heddle::kernels::cuda {

HEDDLE_DEVICE int64_t position_of(int64_t i, const SeenArgs& seen) {
  if (seen.cp == 1) return i;
  const int64_t chunk = seen.length / (2 * seen.cp);
  return i < chunk ? seen.index * chunk + i : (2 * seen.cp - 1 - seen.index) * chunk + (i - chunk);
}
/// Key rows that stand before the position.
HEDDLE_DEVICE int64_t keys_before(int64_t position, const SeenArgs& seen) {
  if (seen.owner < 0 || seen.cp == 1) return position;
  const int64_t chunk = seen.length / (2 * seen.cp);
  const int64_t near = position - seen.owner * chunk, far = position - (2 * seen.cp - 1 - seen.owner) * chunk;
  return min(max(near, int64_t{0}), chunk) + min(max(far, int64_t{0}), chunk);
}
/// Query row i of a sequence sees the key rows [first_of(sequence, i), seen_of(i)). Neither falls with i.
HEDDLE_DEVICE int64_t seen_of(int64_t i, const SeenArgs& seen) {
  if (!seen.causal) return seen.owner < 0 ? seen.length : seen.length / seen.cp;
  return keys_before(position_of(i, seen) + 1, seen);
}
HEDDLE_DEVICE int64_t first_of(int64_t sequence, int64_t i, const SeenArgs& seen) {
  if (seen.window == 0 && seen.starts == nullptr) return 0;
  const int64_t own = position_of(i, seen);
  int64_t position = seen.window > 0 ? max(own + 1 - seen.window, int64_t{0}) : 0;
  if (seen.starts != nullptr) {
    position = max(position, static_cast<int64_t>(seen.starts[sequence * seen.length + own]));
  }
  return keys_before(position, seen);
}

}  // namespace heddle::kernels::cuda
