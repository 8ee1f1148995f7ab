// State that `ahead_of_norm` keeps a copy of, so that an update that ran ahead can be taken back: who keeps what,
// as the passes need to know that move state to the host, where the copy lies already.
#pragma once

#include <map>

#include "heddle/ir/listing.h"

namespace heddle::passes {

/// Of state, its copy: made before an update on condition `before`, brought back on condition `back`.
struct KeptState {
  ir::ValueId copy = ir::none;
  ir::Condition before, back;
};
std::map<ir::ValueId, KeptState> kept_states(const ir::Listing& listing);

/// Whether an op brings such a copy up to date or brings it back.
bool keeps_state(const std::map<ir::ValueId, KeptState>& kept, const ir::Op& op);

/// What takes the place of such an op where the state lies on the host too: its processor copies.
ir::Op kept_by_processor(const ir::Op& op);

}  // namespace heddle::passes
