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
    using Start = Parameter::Start;
    const bool maps = start == Start::normal;
    const double deviation = maps                                 ? c.initializer_range
                             : start == Start::constant           ? 0.01
                             : start == Start::weights_of_streams ? static_cast<double>(c.hyper_connections)
                                                                  : 0;
    return w.parameter({.name = prefix + what,
                        .part = Parameter::Part::hyper_connection,
                        .start = start,
                        .deviation = deviation,
                        .decays = maps},
                       w.wide(), std::move(shape));
  };
  const bool mixes = c.mixes_streams();
  const ValueId fn = parameter("fn", Parameter::Start::normal, {weights, c.residual_width()});
  const ValueId base =
      parameter("base", mixes ? Parameter::Start::zeros : Parameter::Start::weights_of_streams, {weights});
  const ValueId scale = parameter("scale", mixes ? Parameter::Start::ones : Parameter::Start::constant, {scales});
  const ValueId q = w.op("linear", {x, fn}, {name + "_map"}, {{"wide", int64_t{1}}})[0];
  ir::Attributes attributes{{"streams", c.hyper_connections}};
  if (c.mixes_streams()) {
    attributes.set("iterations", c.hyper_connections_iterations);
  } else {
    attributes.set("magnitude", c.hyper_connections_magnitude);
  }
  attributes.set("epsilon", c.hyper_connections_eps).set("norm_epsilon", c.rms_norm_eps);
  const auto made =
      w.op("read_streams", {x, q, base, scale}, {name + "_read", name + "_weights", name + "_rstd"}, attributes);
  return {made[0], made[1]};
}

// The names of the weights are those of Transformers. `writes`: weights of writing are made too. Of the maps, which
// all read the normed row, the one of weights of writing is as wide as the router's.
BlockInput read_gated(Writer& w, ValueId x, bool writes, const std::string& prefix, const std::string& name) {
  constexpr auto kOf = Parameter::Part::hyper_connection;
  const ModelConfig& c = w.config();
  const int64_t n = c.hyper_connections, width = c.residual_width(), rank = c.hyper_connections_rank;
  const bool centered = c.zero_centered_norms;
  const ValueId gain = w.parameter({.name = prefix + "hc_norm.weight",
                                    .part = Parameter::Part::norm,
                                    .start = centered ? Parameter::Start::zeros : Parameter::Start::ones},
                                   w.wide(), {width});
  ir::Attributes norm{{"streams", n}, {"epsilon", c.rms_norm_eps}};
  if (centered) norm.set("offset", 1.0);
  const ValueId y = w.op("norm_streams", {x, gain}, {name + "_streams", name + "_rstd"}, std::move(norm))[0];
  const auto map = [&](ValueId of, const char* what, int64_t rows, const std::string& out) {
    return w.op("linear", {of, w.matrix(kOf, prefix + what + ".weight", rows, w.columns(of))}, {out})[0];
  };
  const ValueId down = map(y, "input_mix_weight_down", rank, name + "_down");
  const ValueId middle =
      w.op("silu", {w.scaled(down, 1 / static_cast<double>(n), name + "_scaled")}, {name + "_silu"})[0];
  std::vector<ValueId> in{y, map(middle, "input_mix_weight_up", width, name + "_up")};
  std::vector<std::string> out{name + "_read"};
  if (writes) {
    const ValueId inject = w.matrix(kOf, prefix + "block_inject_weight.weight", n, width);
    in.push_back(w.op("linear", {y, inject}, {name + "_inject"}, {{"wide", int64_t{1}}})[0]);
    out.push_back(name + "_weights");
  }
  const auto made = w.op("read_gated_streams", in, out, {{"streams", n}});
  return {made[0], writes ? made[1] : ir::none};
}

// The mean of the streams, the first two added first.
ValueId mean_of_streams(Writer& w, ValueId x, const std::string& name) {
  const std::vector<ValueId> streams = streams_of(w, x, name);
  ValueId sum = streams[0];
  for (size_t i = 1; i < streams.size(); ++i)
    sum = w.op("add", {sum, streams[i]}, {fmt::format("{}_{}_sum", name, i + 1)})[0];
  return w.scaled(sum, 1 / static_cast<double>(streams.size()), name + "_read");
}

}  // namespace

ValueId begin_streams(Writer& w, ValueId x_TH) {
  if (!w.config().has_streams()) return x_TH;
  return join_streams(w, std::vector(static_cast<size_t>(w.config().hyper_connections), x_TH), "x");
}

std::vector<ValueId> streams_of(Writer& w, ValueId x, const std::string& name) {
  std::vector<ValueId> streams;
  for (int64_t i = 1; i < w.config().hyper_connections; ++i) {
    const std::string at = fmt::format("{}_{}", name, i);
    const auto parts = w.op("split", {x}, {at, at + "_rest"}, {{"first", w.config().hidden_size}});
    streams.push_back(parts[0]);
    x = parts[1];
  }
  streams.push_back(x);
  return streams;
}

ValueId join_streams(Writer& w, const std::vector<ValueId>& streams, const std::string& name) {
  const int64_t H = w.config().hidden_size;
  ValueId x = streams[0];
  for (int64_t i = 1; i < std::ssize(streams); ++i) {
    x = w.op("concat", {x, streams[static_cast<size_t>(i)]}, {fmt::format("{}_{}_streams", name, i + 1)},
             {{"first", i * H}, {"second", H}})[0];
  }
  return x;
}

BlockInput read_streams(Writer& w, ValueId x, const std::string& prefix, const std::string& name) {
  const ModelConfig& c = w.config();
  if (!c.has_streams()) return {x, ir::none};
  if (c.has_gated_streams()) return read_gated(w, x, true, prefix + name + "_hyper_connection.", name);
  return read_by(w, x, c.stream_weights(), c.stream_scales(), prefix + name + "_hc.", name);
}

ValueId write_streams(Writer& w, ValueId x, ValueId a_TH, const BlockInput& read, const std::string& sum) {
  if (!w.config().has_streams()) return w.op("add", {x, a_TH}, {sum})[0];
  return w.op("write_streams", {x, a_TH, read.weights}, {sum}, {{"streams", w.config().hyper_connections}})[0];
}

ValueId end_streams(Writer& w, ValueId x, const std::string& prefix, const std::string& name) {
  if (!w.config().has_streams()) return x;
  if (w.config().has_gated_streams()) return read_gated(w, x, false, prefix + "hyper_connection_mixer.", name).x_TH;
  if (w.config().hyper_connections_mean) return mean_of_streams(w, x, name);
  return read_by(w, x, w.config().hyper_connections, 1, prefix + "hc_head.hc_", name).x_TH;
}

}  // namespace heddle::model
