// Words for which weights, or sums of their gradients, lie on the host: "all", "0-11", "mlp, experts:3-26", "auto".
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "heddle/model/parameter.h"
#include "heddle/passes/op_groups.h"

namespace heddle::passes {

/// The words for parts of a model: "all", "attention", …
std::vector<std::string> part_words();
/// Reads such words, of all layers or of some: "experts:3-26, 0-11". ConfigError for any other.
std::vector<OpGroup> part_groups(std::string_view text);
/// True if some group has the parameter.
bool holds(const std::vector<OpGroup>& groups, const model::Parameter& p);

/// The words that memory.weights and memory.gradients take. "device", by itself, is no weight.
std::vector<std::string> residency_words();
/// A range of layers by itself is all that they hold: "0-11" is "all:0-11".
std::vector<OpGroup> residency_groups(std::string_view text);

/// The home of a parameter's weight: on the host whatever it costs, or only where the link brings it in time.
enum class Residency : uint8_t { device, where_in_time, host };

/// The homes of all parameters that are trained and have rows. Vectors are little beside a copy, and stay.
std::map<ir::ValueId, Residency> residencies_of(const std::vector<model::Parameter>& parameters,
                                                const ir::Listing& listing, const std::vector<OpGroup>& groups);

}  // namespace heddle::passes
