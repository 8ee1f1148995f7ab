// The fusions that a user can turn off (passes/fuse.h).
#pragma once

#include <string>
#include <vector>

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

}  // namespace heddle::passes
