// Fusion: patterns of forward ops become one op each, before differentiation, so that the gradient is that of the
// fused op. Each fusion is a switch of its own.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "heddle/ir/listing.h"

namespace heddle::passes {

/// The fusions that `fuse` knows:
///   norm     add, rms_norm (or layer_norm)    -> add_rms_norm (or add_layer_norm)
///   swiglu   split, silu, multiply            -> swiglu
///   bias_swiglu  add_bias, swiglu             -> swiglu with a bias
///                add_expert_bias, clamped_swiglu -> clamped_swiglu with a bias
///   gelu     add_bias, gelu                   -> gelu with a bias
///   bias     linear, add_bias                 -> linear with a bias
///   dropout_add  add_bias, dropout, add       -> dropout_add with a bias
///   rope     rope, rope, mla_assemble         -> mla_rope
///   router   router_scores, choose, gate      -> router
///   combine  unpermute (or combine), add      -> unpermute (or combine) with a residual
///   loss     linear, cross_entropy            -> linear_cross_entropy; after differentiation its F, I and W
///                                                become linear_cross_entropy_train (fuse_loss)
///   adamw    adamw, cast_weight               -> adamw that writes the copy (see passes/update/update)
const std::vector<std::string>& fusion_names();

/// Applies the forward fusions whose names are in `wanted`. A pattern whose inner values are read elsewhere is
/// left.
void fuse(ir::Listing& listing, const std::set<std::string>& wanted);

/// After differentiation: the gradient that passes a norm by on its residual path is added inside the norm's own,
/// as add_rms_norm has it, so that a norm at the head of a stage rounds like one inside.
void fuse_norm_gradient(ir::Listing& listing);

/// After differentiation: loss, input and weight gradient of linear_cross_entropy in one op of phase I. The
/// weight's gradient is then part of I; a schedule that defers W keeps them apart.
void fuse_loss(ir::Listing& listing);

}  // namespace heddle::passes
