#include "heddle/model/text/next_tokens.h"

#include "heddle/model/loss_scale.h"
#include "heddle/model/text/decoder_layer.h"

namespace heddle::model {

using ir::ValueId;

namespace {

int64_t layer_of(const Writer& w, int64_t depth) { return w.config().num_hidden_layers + depth - 1; }

std::string begin(Writer& w, int64_t depth) {
  w.begin_layer(layer_of(w, depth));
  return layer_prefix(w.config(), w.layer());
}

}  // namespace

ValueId depth_input(Writer& w, int64_t depth, ValueId h_TH) {
  const std::string prefix = begin(w, depth);
  return w.norm(h_TH, prefix + "hnorm.weight", "h_normed");
}

ValueId depth_states(Writer& w, Ends& ends, int64_t depth, ValueId normed_TH) {
  const int64_t hidden = w.config().hidden_size;
  const std::string prefix = begin(w, depth);
  const ValueId e_TH = w.norm(ends.embed(depth, "embedded"), prefix + "enorm.weight", "e_normed");
  const ValueId joined = w.op("concat", {e_TH, normed_TH}, {"joined"}, {{"first", hidden}, {"second", hidden}})[0];
  ValueId no_shortcut = ir::none;
  return decoder_layer(w, w.layer(), w.linear(joined, Parameter::Part::join, prefix, "eh_proj", hidden),
                       no_shortcut);
}

void predict_depth(Writer& w, Ends& ends, int64_t depth, ValueId h_TH) {
  if (depth == 0) {
    w.begin_layer(-1);
    return ends.predict(h_TH, "model.norm.weight", 1, {.kind = &kNextTokenLoss, .scale = kScaleNextToken},
                        "next_token");
  }
  const std::string prefix = begin(w, depth);
  const auto number = static_cast<int>(depth);
  ends.predict(h_TH, prefix + "shared_head.norm.weight", depth + 1,
               {.kind = &kDepthLoss,
                .of = number,
                .scale = kScaleDepth + number - 1,
                .weight = w.config().depth_loss_weight()},
               fmt::format("depth.{}", depth));
}

}  // namespace heddle::model
