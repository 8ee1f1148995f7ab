// Pages of several hosts on one clock. A page has times by its own host's clock, which may be hours from another's:
// nobody may subtract the one from the other before they are brought together.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "heddle/comm/calls/rank_status.h"

namespace heddle::comm {

/// All times of a page, later by so much.
void shift(RankStatus& page, int64_t ns);

/// The pages by the clock of `host`, where one of them is of it, else by that of the first. Ranks leave a
/// collective together: the middle of the differences says how far two hosts' clocks are apart. Hosts that have met
/// no other in a collective, directly or by others, stay as they are.
std::vector<RankStatus> by_one_clock(std::vector<RankStatus> pages, const std::string& host);

}  // namespace heddle::comm
