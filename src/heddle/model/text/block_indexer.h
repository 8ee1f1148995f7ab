// The indexer of a layer that chooses keys in blocks (IndexBlocks; ops/selection.cpp). Blocks are counted from the
// start of a sequence, whatever documents are in it.
//
// By the greatest score of its keys, each head of the indexer chooses for one key head. Its heads are cut among tp
// as those are. The one key of a token is made of the layer's normed rows.
//
// By a mean of its keys, a block has one key, made of whole sequences as an entry of compressed attention is
// (ops/compression.cpp). Each rank of tp chooses for its own T rows, with whole weights. The mean has equal
// weights, and is normed and turned by the block's first position. Or a gate of each token and a bias of its place
// weigh it, element by element.
#pragma once

#include <string>

#include "heddle/model/text/indexer.h"

namespace heddle::model {

/// A layer's normed rows, of this rank and of its tp group, and the latent of queries or the rows themselves.
struct IndexedRows {
  ir::ValueId n_TH = ir::none, n_UH = ir::none, q_latent_T = ir::none;
};
/// Chooses, as indexer.h has it.
Index index_blocks(Writer& writer, const IndexedRows& rows, const std::string& prefix);

/// Says that the chosen ones are blocks, in the attributes of attention by so many key heads of this rank.
void set_blocks(const Writer& writer, int64_t kv_heads, ir::Attributes& attributes);

/// True if queries of the layer attend to chosen keys, and not to all.
bool chooses_in(const Writer& writer);

}  // namespace heddle::model
