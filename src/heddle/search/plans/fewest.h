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

/// True if so many devices can't hold each weight, gradient and optimizer state once, however they are spread.
bool surely_too_few(const Query& query, int devices);

struct Fewest {
  int devices = 0;
  Answer answer;     // on so many devices
  int searches = 0;  // number of searches that it took
};

/// Finds the fewest devices, at most the query's. More devices may fit no plan where fewer do: 88 divide in fewer
/// ways than 64. So the counts are bisected, and every count below the result is tried. `search` runs a query by
/// estimates; its result is checked by `whole`, which may know better, and where that finds nothing the next count
/// follows. Returns nothing where no count will do. ConfigError as the search has it of all devices.
std::optional<Fewest> fewest_devices(const Query& query, const std::function<Answer(const Query&)>& search,
                                     const std::function<Answer(const Query&)>& whole,
                                     const std::function<void(int devices)>& asking = {});

}  // namespace heddle::search
