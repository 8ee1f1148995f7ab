// The weights that a stage of training an indexer holds still (ModelConfig::index_stage): in `dense` all but those
// of indexers, in `off` those of indexers. What computes and keeps their gradients, masters and moments falls away,
// as beside adapters; unlike there they stand in checkpoints.
#pragma once

#include "heddle/model/model_config.h"
#include "heddle/model/text/rank_text.h"

namespace heddle::passes {

void index_stage(model::RankText& text, model::IndexStage stage);

}  // namespace heddle::passes
