// The start of the forward of 32 queries. A part of the ring takes over the parts before it: their output stands
// for one key of weight exp(lse), as a sink does that has no value.
#pragma once

#include <algorithm>
#include <cstring>
#include <limits>

#include "heddle/kernels/host/attention/attention_problem.h"

namespace heddle::kernels::host::attention {

/// The running sums of 32 queries: of weights exp(score − reference).
struct Running {
  float* out;        // [32][width]
  float* sums;       // [32][lanes], a row's sum is the sum of its lanes
  float* reference;  // [32], in units of which a nat has `per_nat`
  float* limit;      // [32], the raw score at which the reference must move
  int64_t width, lanes;
  float per_nat;
  float slack;  // the most that scores may be above the reference
};

/// Begins with nothing, with the head's sink, or with what the parts before have given for `rows` rows.
inline void begin(const Task& task, int64_t head, int64_t first_row, int64_t rows, const Running& r) {
  const Problem& p = task.problem;
  constexpr float kNone = -std::numeric_limits<float>::infinity();
  std::memset(r.out, 0, static_cast<size_t>(kStep * r.width) * sizeof(float));
  std::memset(r.sums, 0, static_cast<size_t>(kStep * r.lanes) * sizeof(float));
  std::fill_n(r.reference, kStep, p.first_seen == nullptr ? kNone : kUnmet);
  std::fill_n(r.limit, kStep, kNone);
  const auto meet = [&](int64_t row, float score) {
    r.reference[row] = score * r.per_nat;
    r.limit[row] = (r.reference[row] + r.slack) / (p.scale * r.per_nat);
    r.sums[row * r.lanes] = 1.0f;
  };
  if (task.operands.sinks != nullptr) {
    for (int64_t row = 0; row < kStep; ++row) meet(row, task.operands.sinks[head]);
  }
  for (int64_t row = 0; row < rows && task.operands.out_before != nullptr; ++row) {
    const int64_t at = (p.first_query(task.unit) + first_row + row) * p.heads + head;
    if (task.operands.lse_before[at] == kNone) continue;  // they had no key for it
    meet(row, task.operands.lse_before[at]);
    std::copy_n(task.operands.out_before + at * p.value_dim, p.value_dim, r.out + row * r.width);
  }
}

/// A part of whose keys these queries see none: what the parts before have given.
inline void pass_on(const Task& task, int64_t head, int64_t first_row, int64_t rows) {
  const Problem& p = task.problem;
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t at = (p.first_query(task.unit) + first_row + row) * p.heads + head;
    float* const out = static_cast<float*>(task.operands.out) + at * p.value_dim;
    if (task.operands.out_before != nullptr) {
      std::copy_n(task.operands.out_before + at * p.value_dim, p.value_dim, out);
      task.operands.lse[at] = task.operands.lse_before[at];
    } else {
      std::fill_n(out, p.value_dim, 0.0f);
      task.operands.lse[at] = -std::numeric_limits<float>::infinity();
    }
  }
}

}  // namespace heddle::kernels::host::attention
