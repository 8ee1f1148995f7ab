// A model and its step as a file of torch_peer/shapes states it, read by both sides of the comparison with PyTorch.
#pragma once

#include <string>

#include "heddle/model/model_config.h"

namespace heddle::bench {

struct Shape {
  model::ModelConfig model;
  int64_t sequence = 512, sequences = 4;  // tokens of a sequence; sequences of a microbatch
  int microbatches = 2;
};

/// Keys that the file lacks are as they are in ModelConfig. ConfigError where it can't be read.
Shape read_shape(const std::string& path);

}  // namespace heddle::bench
