// Fusion: patterns of forward ops become one op each, before differentiation, so that the gradient is that of the
// fused op. Each fusion is a switch of its own.
#pragma once

#include <set>
#include <string>

#include "heddle/ir/listing.h"
#include "heddle/passes/options/fusions.h"

namespace heddle::passes {

/// Applies the forward fusions whose names are in `wanted`. A pattern whose inner values are read elsewhere is
/// left.
void fuse(ir::Listing& listing, const std::set<std::string>& wanted);

/// After differentiation: adds the gradient that passes a norm by on its residual path inside the norm's own, as
/// add_rms_norm has it. So a norm at the head of a stage rounds like one inside.
void fuse_norm_gradient(ir::Listing& listing);

/// After differentiation: loss, input and weight gradient of linear_cross_entropy in one op of phase I. The
/// weight's gradient is then part of I; a schedule that defers W keeps them apart.
void fuse_loss(ir::Listing& listing);

}  // namespace heddle::passes
