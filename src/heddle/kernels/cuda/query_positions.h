// The sequence and position of each row of queries, on a device (kernels/query_rows.h says what they mean).
#pragma once

#include "heddle/kernels/cuda/language.h"
#include "heddle/kernels/cuda/selection_kernels.h"

namespace heddle::kernels::cuda {

HEDDLE_DEVICE int64_t sequence_of(const QueryRowsArgs& rows, int64_t t) {
  if (rows.places == nullptr) return t / rows.own;
  return rows.places[t] < 0 ? 0 : rows.places[t] / rows.S;
}
HEDDLE_DEVICE int64_t base_of(const QueryRowsArgs& rows, int64_t t) { return sequence_of(rows, t) * rows.keys; }
HEDDLE_DEVICE int64_t positions_of(const QueryRowsArgs& rows, int64_t t) {
  if (rows.places != nullptr) return rows.places[t] < 0 ? 0 : rows.places[t] % rows.S + 1;
  const int64_t i = rows.tp_index * rows.own + t % rows.own;
  if (rows.cp == 1) return i + 1;
  const int64_t chunk = rows.S / (2 * rows.cp);
  return (i < chunk ? rows.cp_index * chunk + i : (2 * rows.cp - 1 - rows.cp_index) * chunk + (i - chunk)) + 1;
}
HEDDLE_DEVICE int64_t start_of(const QueryRowsArgs& rows, int64_t t) {
  if (rows.starts == nullptr) return 0;
  const int64_t end = positions_of(rows, t);
  const int64_t first = rows.starts[sequence_of(rows, t) * rows.S + end - 1];
  return first < 0 ? 0 : first < end ? first : end;
}
/// Query t sees the keys [first, seen) of its sequence.
HEDDLE_DEVICE int64_t seen_of(const QueryRowsArgs& rows, int64_t t) { return positions_of(rows, t) / rows.rate; }
HEDDLE_DEVICE int64_t first_of(const QueryRowsArgs& rows, int64_t t) {
  const int64_t first = start_of(rows, t) / rows.rate, seen = seen_of(rows, t);
  return first < seen ? first : seen;
}

}  // namespace heddle::kernels::cuda
