// The fewest devices that train a model which the given ones do not.
#pragma once

#include <functional>
#include <optional>

#include "heddle/search/plans/fewest.h"

namespace heddle::advisor {

/// Doubles the devices of the query, up to so many, until a plan fits; then finds the fewest below. `first`: the
/// count that is tried first. None where nothing fits or it was stopped. The batch of a count that does not divide
/// it is passed over.
std::optional<search::Fewest> fewest_from(const search::Query& query, int first, int most,
                                          const std::function<bool()>& stop);

/// The fewest devices beyond the query's own, up to so many. 0: none.
int fewest_beyond(const search::Query& query, int most, const std::function<bool()>& stop);

/// So many times the devices of a query, and no more than a search takes.
int times_devices(const search::Query& query, int times);

}  // namespace heddle::advisor
