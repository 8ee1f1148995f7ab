#include "heddle/model/text/streams.h"

namespace heddle::model {

using ir::ValueId;

namespace {

// A row of streams, read by so many weights a token. Starts are those of Transformers; fn is a matrix to Muon and
// decays, base and scale are vectors.
BlockInput read_by(Writer& w, ValueId x, int64_t weights, int64_t scales, const std::string& prefix,
                   const std::string& name) {
  const ModelConfig& c = w.config();
  const auto parameter = [&](const char* what, Parameter::Start start, std::vector<int64_t> shape) {
    const bool maps = start == Parameter::Start::normal;
    return w.parameter({.name = prefix + what,
                        .part = Parameter::Part::hyper_connection,
                        .start = start,
                        .deviation = maps ? c.initializer_range : 0,
                        .decays = maps},
                       w.wide(), std::move(shape));
  };
  const ValueId fn = parameter("fn", Parameter::Start::normal, {weights, c.residual_width()});
  const ValueId base = parameter("base", Parameter::Start::zeros, {weights});
  const ValueId scale = parameter("scale", Parameter::Start::ones, {scales});
  const ValueId q = w.op("linear", {x, fn}, {name + "_map"}, {{"wide", int64_t{1}}})[0];
  const auto made = w.op("read_streams", {x, q, base, scale}, {name + "_read", name + "_weights", name + "_rstd"},
                         {{"streams", c.hyper_connections},
                          {"iterations", c.hyper_connections_iterations},
                          {"epsilon", c.hyper_connections_eps},
                          {"norm_epsilon", c.rms_norm_eps}});
  return {made[0], made[1]};
}

}  // namespace

ValueId begin_streams(Writer& w, ValueId x_TH) {
  const int64_t H = w.config().hidden_size;
  ValueId x = x_TH;
  for (int64_t streams = 1; streams < w.config().hyper_connections; ++streams) {
    x = w.op("concat", {x, x_TH}, {fmt::format("x_{}_streams", streams + 1)},
             {{"first", streams * H}, {"second", H}})[0];
  }
  return x;
}

BlockInput read_streams(Writer& w, ValueId x, const std::string& prefix, const std::string& name) {
  const int64_t n = w.config().hyper_connections;
  return w.config().has_streams() ? read_by(w, x, n * (2 + n), 3, prefix, name) : BlockInput{x, ir::none};
}

ValueId write_streams(Writer& w, ValueId x, ValueId a_TH, const BlockInput& read, const std::string& sum) {
  if (!w.config().has_streams()) return w.op("add", {x, a_TH}, {sum})[0];
  return w.op("write_streams", {x, a_TH, read.weights}, {sum}, {{"streams", w.config().hyper_connections}})[0];
}

ValueId end_streams(Writer& w, ValueId x, const std::string& name) {
  if (!w.config().has_streams()) return x;
  return read_by(w, x, w.config().hyper_connections, 1, "model.hc_head.hc_", name).x_TH;
}

}  // namespace heddle::model
