// 1F1B (PipeDream-flush, Narayanan et al., arXiv 2104.04473): rank r of P runs P−1−r forwards, then one forward and
// one backward in turn, then drains. With one rank it is plain gradient accumulation.
#pragma once

#include <vector>

#include "heddle/ir/program.h"

namespace heddle::schedule {

/// Compute only: which block kind on which microbatch, for pipeline rank r of `ranks`; the beginning of the step
/// first.
struct Compute {
  ir::BlockKind kind = ir::BlockKind::F;
  int stage = 0;
  int microbatch = 0;
  bool operator==(const Compute&) const = default;
};
std::vector<Compute> one_forward_one_backward(int rank, int ranks, int microbatches);

/// Adds to `program` the blocks that the orders need, and to `actions` one list for each order: receives before and
/// sends after what they belong to, and the end of the step. List i is for pipeline rank i.
void lower(ir::StepProgram& program, ir::StepProgram::ActionLists& actions,
           const std::vector<std::vector<Compute>>& ranks);

}  // namespace heddle::schedule
