// Words for which weights, or sums of their gradients, lie on the host: "all", "0-11", "mlp, experts:3-26", "auto".
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "heddle/model/parameter.h"
#include "heddle/passes/op_groups.h"

namespace heddle::passes {

/// What memory.weights and memory.gradients take. "device", by itself, is no weight.
std::vector<std::string> home_words();
/// A range of layers by itself is all that they hold: "0-11" is "all:0-11".
std::vector<OpGroup> home_groups(std::string_view text);

/// Whether a parameter's weight is to lie on the host: whatever it costs, or where the link brings it in time.
enum class Home : uint8_t { device, where_in_time, host };

/// Of every parameter that is trained and has rows: vectors are little beside a copy, and stay.
std::map<ir::ValueId, Home> homes_of(const std::vector<model::Parameter>& parameters, const ir::Listing& listing,
                                     const std::vector<OpGroup>& groups);

}  // namespace heddle::passes
