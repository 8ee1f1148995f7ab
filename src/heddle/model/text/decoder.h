// A decoder as forward text: the shares of a pipeline rank, what it sends and receives, and what each is made of.
// Straight-line and unfused; passes do the rest.
#pragma once

#include "heddle/model/model_config.h"
#include "heddle/model/text/rank_spec.h"
#include "heddle/model/text/rank_text.h"

namespace heddle::model {

/// Forward text of one listing. For `predict` it ends in the logits of the next token, without losses or depths;
/// with tp ranks, all rows of the group by this rank's part of the vocabulary. With a cache (`prefill`, `decode`;
/// one rank) it also keeps there what attention reads of each token. Else it updates the statistics of the losses
/// (sums over labels, sequences, tokens) and, for each MoE layer, of the load.
RankText decoder_text(const ModelConfig& config, const RankSpec& spec);

}  // namespace heddle::model
