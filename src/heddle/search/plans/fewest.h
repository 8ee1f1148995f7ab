// The fewest devices on which a model trains at all: of the counts that a cluster's nodes allow, the least for
// which a search finds a plan.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "heddle/search/search.h"

namespace heddle::search {

/// Parts of a node that divide it, then whole nodes, up to so many devices.
std::vector<int> counts_of_nodes(const cost::Accelerator& device, int most);

struct Fewest {
  int devices = 0;
  Answer answer;     // on so many
  int searches = 0;  // that it took
};

/// At most the query's devices. Whether a plan fits is not quite a question of how many devices there are: 88
/// divide in fewer ways than 64. So the counts are bisected, and below what that finds each is asked. `search` runs
/// a query by estimates; what it finds is asked again of `whole`, which may know better, and where that finds
/// nothing the next count is. Nothing where no count will do. ConfigError as the search has it of all devices.
std::optional<Fewest> fewest_devices(const Query& query, const std::function<Answer(const Query&)>& search,
                                     const std::function<Answer(const Query&)>& whole,
                                     const std::function<void(int devices)>& asking = {});

}  // namespace heddle::search
