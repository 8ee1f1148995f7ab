// A pipeline stage's share of a model.
#pragma once

#include <cstdint>

namespace heddle::model {

/// The share of the model that a pipeline stage holds, in this order; nothing is an empty stage.
struct StageShare {
  bool embedding = false;
  int64_t first_layer = 0, layers = 0;
  int64_t first_depth = 1, depths = 0;  // of multi-token prediction
  bool loss = false;                    // the head, and the losses of all depths
  bool is_empty() const { return !embedding && layers == 0 && depths == 0 && !loss; }
  bool operator==(const StageShare&) const = default;
};

}  // namespace heddle::model
