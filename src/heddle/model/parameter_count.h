// The number of a model's parameters.
#pragma once

#include <cstdint>
#include <vector>

#include "heddle/ir/listing.h"
#include "heddle/model/model_config.h"
#include "heddle/model/parameter.h"

namespace heddle::model {

/// Parameters, but for tables and biases of balance, of the whole model, and those that a token passes through.
struct ParameterCount {
  int64_t total = 0;
  int64_t active = 0;
};
ParameterCount count_parameters(const ModelConfig& config, const std::vector<Parameter>& parameters,
                                const ir::Listing& listing);

}  // namespace heddle::model
