// Muon for the matrices of hidden layers (Jordan et al., 2024), with the decay and the size of steps of Moonlight
// (Liu et al., arXiv 2502.16982). The momentum of a matrix, looked ahead (Nesterov), is made nearly orthogonal by
// five Newton–Schulz iterations. It is scaled to the size that AdamW's steps have.
//
//   m = µ·m + g;  u = g + µ·m;  X = u ÷ (‖u‖ + 10⁻⁷)
//   five times: A = X Xᵀ, X = a·X + (b·A + c·A A) X
//   w −= rate·(0.2·√max(rows, columns)·X + decay·w)
//
// A matrix is one of the released model's, whole: gate and up by themselves, each expert's by itself. Momentum and
// master lie as AdamW's do, cut into runs where copies of a weight share them, so that checkpoints know no layout.
// Matrices of one form are dealt out to the copies, and under tp or etp to these ranks too, one exchange there and
// one back. A rank makes its share of them orthogonal, while the next ones come and the last ones go.
#pragma once

#include <functional>
#include <vector>

#include "heddle/passes/update/update.h"

namespace heddle::passes {

/// True if a parameter moves by Muon under these options.
bool moves_by_muon(const model::Parameter& p, const ir::Listing& listing, const UpdateOptions& options);

/// A matrix (or one an expert, or two in one) with its gradient and state as this rank has them: whole, or its run.
struct MuonTarget {
  const model::Parameter* parameter = nullptr;
  std::vector<ir::ValueId> gradients;
  ir::ValueId momentum = ir::none, master = ir::none;
  ir::ValueId copy = ir::none;  // the rounded one that the step writes too, or none
};

/// Writes the updates of the targets to the end of the step. `meanwhile` writes what runs while the first matrices
/// are on their way, `stepped` what follows a target's step.
void write_muon(ir::Listing& listing, const UpdateOptions& options, const std::vector<MuonTarget>& targets,
                ir::ValueId clip, ir::ValueId hyper, const std::function<void()>& meanwhile,
                const std::function<void(const MuonTarget&)>& stepped);

}  // namespace heddle::passes
