#include "heddle/model/text/decoder.h"

#include <algorithm>
#include <map>

#include "heddle/base/error.h"
#include "heddle/model/text/decoder_layer.h"
#include "heddle/model/text/next_tokens.h"
#include "heddle/model/text/streams.h"

namespace heddle::model {

using ir::Attributes;
using ir::none;
using ir::ValueId;

namespace {

class Decoder {
 public:
  Decoder(const ModelConfig& config, const RankSpec& spec) : w_(config, spec), ends_(w_) {}

  RankText write() {
    for (const RankSpec::Chunk& chunk : w_.spec().chunks) {
      chunk_ = w_.begin_chunk(chunk.microbatches);
      if (!chunk.share.is_empty()) write(chunk);
    }
    return w_.take();
  }

 private:
  /// True if a layer is the second of a pair, whose first has left what its experts made.
  bool in_pair(int64_t layer) const { return layer > 0 && w_.config().begins_pair(layer - 1); }

  // Hidden states go from share to share: those after the last layer and, behind them, those of each depth so far,
  // as they are handed on. Between the layers of a pair there stands what experts made.
  void write(const RankSpec::Chunk& chunk) {
    const StageShare& share = chunk.share;
    const int64_t last_depth = std::min(w_.depths(), share.first_depth + share.depths - 1);
    if (share.embedding || share.depths > 0 || share.loss) ends_.load_tokens(share);
    if (!w_.predicts()) w_.load_scales();
    if (w_.config().turns()) w_.load_rope_table();
    if (w_.config().learns_positions() && share.embedding) w_.load_positions();
    const bool attends = share.layers > 0 || share.depths > 0;
    if (share.embedding || attends) w_.load_dropout(attends);
    w_.load_ids_of_rows(share.first_layer, share.layers);
    w_.load_query_scales(share.first_layer, share.layers, share.depths);
    if (w_.caches()) w_.load_places();
    w_.load_starts();

    std::vector<ValueId> states =
        share.embedding ? std::vector{begin_streams(w_, ends_.embed(0, "x"))} : arrive(chunk);
    if (w_.config().layer_embedding_size > 0 && share.layers > 0) w_.set_layer_rows(ends_.layer_rows(states[0]));
    const int64_t end = share.first_layer + share.layers;
    ValueId shortcut = none;
    if (share.layers > 0 && in_pair(share.first_layer)) {
      shortcut = states.back();
      states.pop_back();
    }
    for (int64_t l = share.first_layer; l < end; ++l) states[0] = decoder_layer(w_, l, states[0], shortcut);
    if (share.layers > 0 && in_pair(end)) states.push_back(shortcut);
    if (share.layers > 0 && end == w_.config().num_hidden_layers) states[0] = handed_on(w_, 0, states[0]);
    w_.begin_layer(-1);
    if (share.loss) ends_.load_head();
    // Two read a state: the depth that follows, and the head. The depth's norm is written first. So the backward
    // has the head's part of the gradient, rounded, before this norm adds its own to it, just as where that part
    // comes from another rank. The roundings have one order, wherever the model is cut.
    for (size_t s = 0; s < states.size(); ++s) {
      const auto next = static_cast<int64_t>(s) + 1;
      const bool deeper = next >= share.first_depth && next <= last_depth;
      const ValueId normed_TH = deeper ? depth_input(w_, next, states[s]) : none;
      if (share.loss) predict_depth(w_, ends_, next - 1, states[s]);
      if (deeper) states.push_back(depth_states(w_, ends_, next, normed_TH));
    }
    w_.begin_layer(-1);
    if (chunk.to.edge < 0) return;
    if (chunk.to.step == 0) {
      local_states_[chunk.to.edge] = states;
      return;
    }
    for (size_t d = 0; d < states.size(); ++d) {
      w_.op("send", {states[d]}, {}, to(chunk.to).set("state", static_cast<int64_t>(d)), "pp");
    }
  }

  static Attributes to(const Neighbour& other) { return {{"step", int64_t{other.step}}, {"edge", other.edge}}; }

  std::vector<ValueId> arrive(const RankSpec::Chunk& chunk) {
    HEDDLE_CHECK(chunk.from.edge >= 0, "chunk {} of listing {} comes from nowhere", chunk_, w_.spec().rank);
    if (chunk.from.step == 0) return local_states_.at(chunk.from.edge);
    Attributes attributes = to(chunk.from);
    attributes.set("dtype", std::string(heddle::name_of(w_.spec().dtype)))
        .set("rows", w_.tokens())
        .set("columns", w_.config().residual_width());
    std::vector<ValueId> states;
    const int64_t within = chunk.share.layers > 0 && in_pair(chunk.share.first_layer) ? 1 : 0;
    for (int64_t d = 0; d < std::min(w_.depths() + 1, chunk.share.first_depth) + within; ++d) {
      states.push_back(w_.op("receive", {}, {"x"}, attributes.set("state", d), "pp")[0]);
    }
    return states;
  }

  Writer w_;
  Ends ends_;
  int chunk_ = 0;
  std::map<int64_t, std::vector<ValueId>> local_states_;  // by edge: what a chunk leaves to another of this rank
};

}  // namespace

RankText decoder_text(const ModelConfig& config, const RankSpec& spec) { return Decoder(config, spec).write(); }

}  // namespace heddle::model
