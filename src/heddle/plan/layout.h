// The layers that each pipeline stage holds: evenly, from a layout string, or balanced by cost.
#pragma once

#include <string>
#include <vector>

#include "heddle/model/model_config.h"
#include "heddle/model/stage_share.h"

namespace heddle::plan {

/// The shares of `stages` stages. `layout`:
///   "even"      Layers as equal as can be, the first stages take one more. The embedding is first; the last stage
///               has the depths of multi-token prediction and the loss.
///   "balanced"  The cut whose costliest stage is cheapest, by the model's FLOPs.
///   otherwise:  A string as Megatron-LM's --pipeline-model-parallel-layout: stages between "|", E the embedding,
///               t a layer, m a depth of multi-token prediction, L the loss. "t*3" and "(tt|)*29" repeat, commas
///               mean nothing. A stage may be empty.
/// ConfigError when the string can't be read, or doesn't hold all of the model once and in order, or has another
/// number of stages.
std::vector<model::StageShare> layout_of(const std::string& layout, const model::ModelConfig& config, int stages);

/// The letters of a layout string, stage after stage. ConfigError as above, but any model will do.
std::vector<std::string> letters_of_layout(const std::string& layout, int stages);

/// The shares in letters: "Ett|ttL".
std::string text_of(const std::vector<model::StageShare>& shares);

}  // namespace heddle::plan
