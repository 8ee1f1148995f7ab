// Updates that run ahead of the norm of all gradients, which is known only when the last rank has ended its
// backward (post-validation, Qi et al., Zero Bubble Pipeline Parallelism, arXiv 2401.10241, section 4; but to the
// bit: state is taken back from a copy, not by arithmetic). See docs/adr/0019.
#pragma once

#include "heddle/ir/listing.h"

namespace heddle::passes {

/// Rewrites what the pass `update` has written. Of each adamw one more stands as soon as its gradients are summed,
/// which takes the factor to be 1 and runs where `attempt` says so; the norm trails the step. In the phase check
/// `post_validation` looks back at the step before: where the factor wasn't 1, its state comes back from the copy
/// "kept.NAME" on the host, and it is updated anew from the gradients, which no backward has touched since. Where
/// this step is to run ahead, its state is copied out there.
void ahead_of_norm(ir::Listing& listing);

}  // namespace heddle::passes
