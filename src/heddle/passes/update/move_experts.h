// Experts that change their homes between ranks as a step ends (docs/features/expert_migration.md).
#pragma once

#include "heddle/model/text/rank_text.h"

namespace heddle::passes {

/// Adds one `move_experts` for each parameter that is cut by experts, behind all that `update` has written. It
/// moves what persists of the parameter: master, moments, average, rounded run. It moves the weight itself where it
/// is frozen, or not made anew of these as a step begins. What is packed has an op of its own. InternalError where
/// the runs of state are not shared out among the ranks of edp, or of etp and edp.
void move_experts(model::RankText& text, const ir::Coordinates& mesh);

}  // namespace heddle::passes
