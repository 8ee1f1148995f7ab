// Mamba-2's state-space model instead of attention (Dao and Gu, arXiv 2405.21060), as Nemotron-H (arXiv
// 2504.03624) and Granite 4 have it. A row makes x, a gate z, the groups' B and C, and a time step a head. A
// convolution with a bias and silu pass over x, B and C. With dt = softplus(step + dt_bias), within bounds, each
// head has
//   S ← exp(−exp(A_log)·dt)·S + dt·B·xᵀ,  o = Sᵀ C + D·x
// o is multiplied by silu(z), and normed group by group: before, behind, or not at all. Falcon-H1 (arXiv
// 2507.22448) has factors on the row and on each part that it makes.
//
// Heads are cut among tp and cp as recurrent_heads.h says, each group of B and C with its heads.
#pragma once

#include <string>

#include "heddle/model/text/writer.h"

namespace heddle::model {

/// [T, H] to [T, H]; `prefix` stands before the names of the layer's parameters.
ir::ValueId mamba2(Writer& writer, ir::ValueId n_TH, const std::string& prefix);

}  // namespace heddle::model
