// The shape of a model that Heddle trains, from its configuration.
#pragma once

#include <string>

#include "heddle/model/model_config.h"
#include "heddle/model/shapes/shape.h"

namespace heddle::model {

/// A router of several groups of experts stands for one that is limited to as many nodes as groups it may choose.
Shape shape_of(const ModelConfig& config, std::string name);

}  // namespace heddle::model
