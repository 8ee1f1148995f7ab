// One layer of a decoder: attention and feed-forward, each behind a norm and added to the residual stream.
#pragma once

#include "heddle/model/text/writer.h"

namespace heddle::model {

/// Returns what stands before the names of a layer's parameters. Layers that predict further tokens are called as
/// in the folders of the model's family.
std::string layer_prefix(const ModelConfig& config, int64_t index);

/// Writes layer `index`; what follows belongs to it. `shortcut`: what the experts of a pair's first layer made,
/// which the second adds (model.shortcut_experts).
ir::ValueId decoder_layer(Writer& writer, int64_t index, ir::ValueId x_TH, ir::ValueId& shortcut);

}  // namespace heddle::model
