// The indexer of a layer that selects keys (DeepSeek-V3.2, arXiv 2512.02556, section 2.1). Its queries come from
// the latent of the layer's queries. Its one key and the weights of its heads come from the layer's normed rows.
//
// Each rank of tp indexes its own T rows, so that ranks share the work and hold the indexer's weights whole. Index
// keys are gathered among tp and cp, 128 numbers a token in DeepSeek-V3.2, and the choices of T rows among tp.
#pragma once

#include <string>

#include "heddle/model/text/attend.h"

namespace heddle::model {

/// An indexer makes these of its rank's rows. All are none where the layer has no indexer, or needs none.
struct Index {
  ir::ValueId q = ir::none, k = ir::none, w = ir::none;  // [T, h·d], [B·S, d], [T, h]
  ir::ValueId own = ir::none;                            // i32 [T, k]: what it has chosen
};

/// True if the layer's indexer chooses keys in this listing, or learns.
bool indexes_in(const Writer& writer);

/// Rows of this rank as those of whole sequences.
ir::ValueId gather_whole(Writer& writer, ir::ValueId x_T, const std::string& name);

/// Index keys that are entries of many tokens each, or means of blocks: of whole sequences, or those that the rows
/// of `decode` complete. Returns them, or the cache that has all.
ir::ValueId cached_entries(Writer& writer, ir::ValueId k);

/// Chooses the best keys of an indexer whose heads score together, if any are chosen in this stage. Writes the
/// choice that this layer and those after it take (Writer::chosen).
void choose_best(Writer& writer, Index& index);

/// The loss of the layer's indexer, if it learns. lse: of the layer's attention, of the queries q to keys among
/// which the k are.
void learn(Writer& writer, const Index& index, ir::ValueId q, ir::ValueId k, ir::ValueId lse,
           const HeadSizes& sizes);

/// From the layer's normed rows, of keys that are chosen one by one, and the latent of queries, or the rows
/// themselves where queries have none. Chooses.
Index index_keys(Writer& writer, ir::ValueId n_TH, ir::ValueId q_latent_T, const std::string& prefix);

/// The norm of the one key of a token, in an indexer whose parameters begin with `prefix`.
ir::ValueId normed_index_key(Writer& writer, ir::ValueId k, const std::string& prefix);

/// Attention to the keys that were last chosen, or to all in the stage `dense`, and the loss of the layer's
/// indexer. Keys and values are those of the whole sequences.
ir::ValueId attend_chosen(Writer& writer, const Index& index, ir::ValueId q, ir::ValueId k, ir::ValueId v,
                          const HeadSizes& sizes);

/// Attends to the chosen keys of a cache. Without `values`, its keys hold their values.
ir::ValueId attend_chosen_of_cache(Writer& writer, ir::ValueId q, ir::ValueId keys, ir::ValueId values,
                                   const HeadSizes& sizes);

/// True if queries attend to chosen keys, and not yet to all.
inline bool chooses_keys(const ModelConfig& config) {
  return config.selects() && config.index_stage != IndexStage::dense;
}

}  // namespace heddle::model
