#include "heddle/model/text/next_tokens.h"

#include "heddle/model/loss_scale.h"
#include "heddle/model/text/decoder_layer.h"
#include "heddle/model/text/streams.h"

namespace heddle::model {

using ir::ValueId;

namespace {

int64_t layer_of(const Writer& w, int64_t depth) { return w.config().num_hidden_layers + depth - 1; }

std::string begin(Writer& w, int64_t depth) {
  w.begin_layer(layer_of(w, depth));
  return layer_prefix(w.config(), w.layer());
}

// The names of what reads a depth's states for the head.
Ends::Reader reader_of(Writer& w, int64_t depth) {
  if (depth == 0) {
    w.begin_layer(-1);
    return {"model.norm.weight", "model."};
  }
  const std::string prefix = begin(w, depth);
  return {prefix + "shared_head.norm.weight", prefix};
}

// Returns the row that the layer reads: a map of the token's embedding and the state before it, side by side. Of
// streams each has a map, and the embedding has one, which is added to each (DeepSeek-V4).
ValueId joined(Writer& w, ValueId e_TH, ValueId normed, const std::string& prefix) {
  constexpr auto kOf = Parameter::Part::join;
  const int64_t hidden = w.config().hidden_size;
  if (!w.config().has_streams()) {
    const ValueId both = w.op("concat", {e_TH, normed}, {"joined"}, {{"first", hidden}, {"second", hidden}})[0];
    return w.linear(both, kOf, prefix, "eh_proj", hidden);
  }
  const ValueId e = w.linear(e_TH, kOf, prefix, "e_proj", hidden);
  std::vector<ValueId> streams = streams_of(w, normed, "h");
  for (ValueId& stream : streams)
    stream = w.op("add", {w.linear(stream, kOf, prefix, "h_proj", hidden), e}, {"h_joined"})[0];
  return join_streams(w, streams, "x");
}

}  // namespace

ValueId handed_on(Writer& w, int64_t depth, ValueId h) {
  if (!w.hands_on_normed()) return h;
  const Ends::Reader reader = reader_of(w, depth);
  const Writer::Part part(w, OpPart::head);
  return w.norm(h, reader.norm, "handed_on");
}

ValueId depth_input(Writer& w, int64_t depth, ValueId h) {
  const std::string prefix = begin(w, depth);
  if (!w.config().has_streams()) return w.norm(h, prefix + "hnorm.weight", "h_normed");
  return w.norm(h, prefix + "hnorm.weight", "h_normed", w.config().rms_norm_eps, w.config().hidden_size);
}

ValueId depth_states(Writer& w, Ends& ends, int64_t depth, ValueId normed) {
  const std::string prefix = begin(w, depth);
  const ValueId e_TH = w.norm(ends.embed(depth, "embedded"), prefix + "enorm.weight", "e_normed");
  ValueId no_shortcut = ir::none;
  return handed_on(w, depth, decoder_layer(w, w.layer(), joined(w, e_TH, normed, prefix), no_shortcut));
}

void predict_depth(Writer& w, Ends& ends, int64_t depth, ValueId h) {
  const Ends::Reader reader = reader_of(w, depth);
  if (depth == 0)
    return ends.predict(h, reader, 1, {.kind = &kNextTokenLoss, .scale = kScaleNextToken}, "next_token");
  const auto number = static_cast<int>(depth);
  ends.predict(h, reader, depth + 1,
               {.kind = &kDepthLoss,
                .of = number,
                .scale = kScaleDepth + number - 1,
                .weight = w.config().depth_loss_weight()},
               fmt::format("depth.{}", depth));
}

}  // namespace heddle::model
