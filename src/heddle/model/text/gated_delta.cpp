#include "heddle/model/text/gated_delta.h"

#include <cmath>
#include <optional>

#include "heddle/model/text/attend.h"

namespace heddle::model {

using ir::ValueId;

namespace {

constexpr auto kAttention = Parameter::Part::attention;
constexpr double kUnitEpsilon = 1e-6;  // in the length that queries and keys are divided by
constexpr double kMostDecay = 16;      // of exp(A_log) at the start, as in Mamba-2's code

// The three that pass through the convolution: rows of conv1d.weight from `first` on.
struct Stream {
  ValueId x;
  const char* name;
  int64_t first, width;  // of the whole model
};

ValueId vector_of_heads(Writer& w, const std::string& name, Parameter::Start start) {
  return w.parameter({.name = name,
                      .part = kAttention,
                      .start = start,
                      .deviation = start == Parameter::Start::log_uniform ? kMostDecay : 0,
                      .cuts = {{0, ir::Axis::tp}}},
                     w.wide(), {w.config().linear_num_value_heads});
}

ValueId convolved(Writer& w, const Stream& stream, const std::string& prefix) {
  const ModelConfig& c = w.config();
  const int64_t kernel = c.linear_conv_kernel_dim, all = 2 * c.linear_keys_width() + c.linear_values_width();
  const ValueId weight = w.parameter(
      {.name = fmt::format("{}conv_{}.weight", prefix, stream.name),
       .part = Parameter::Part::convolution,
       .deviation = c.initializer_range,
       .cuts = {{0, ir::Axis::tp}},
       .released = {{prefix + "conv1d.weight", 0, stream.width, stream.first, {all, 1, kernel}}}},
      w.wide(), {stream.width, kernel});
  const std::string out = fmt::format("{}_convolved", stream.name);
  ir::Attributes attributes{{"sequence", w.spec().sequence_length}, {"silu", int64_t{1}}};
  if (w.caches()) {
    const ValueId tails = w.cache_of_sequences(fmt::format("conv_{}", stream.name),
                                               (kernel - 1) * w.columns(stream.x), w.spec().dtype);
    return w.op("cached_conv", {stream.x, weight, ir::none, w.places()}, {out}, attributes, "", {tails})[0];
  }
  if (w.cp() > 1) attributes.set("parts", w.cp());
  std::vector<ValueId> in{stream.x, weight};
  if (w.starts() != ir::none) in.insert(in.end(), {ir::none, w.starts()});
  return w.op("causal_conv", in, {out}, attributes)[0];
}

}  // namespace

ValueId gated_delta(Writer& w, ValueId n_TH, const std::string& prefix) {
  const ModelConfig& c = w.config();
  const int64_t key_heads = c.linear_num_key_heads / w.tp(), heads = c.linear_num_value_heads / w.tp();
  const int64_t shared = heads / key_heads, key_dim = c.linear_key_head_dim, value_dim = c.linear_value_head_dim;
  const int64_t keys = c.linear_keys_width(), values = c.linear_values_width();
  const ValueId n_UH = w.gather(n_TH, "n");
  std::optional<Writer::Part> part(std::in_place, w, OpPart::queries_keys);
  // Each key head has its query, its key, the values of the heads that share it, and their gates.
  const auto halves = [&](ValueId x, int64_t first, const char* left, const char* right) {
    return w.op("split", {x}, {left, right}, {{"first", first}, {"runs", key_heads}});
  };
  const ValueId mixed = w.column_linear(n_UH, kAttention, prefix, "in_proj_qkvz", 2 * keys + 2 * values);
  const auto q_rest = halves(mixed, key_dim, "q_raw", "kvz"), k_rest = halves(q_rest[1], key_dim, "k_raw", "vz");
  const auto v_z = halves(k_rest[1], shared * value_dim, "v_raw", "z");
  const ValueId ba = w.column_linear(n_UH, kAttention, prefix, "in_proj_ba", 2 * c.linear_num_value_heads);
  const auto b_a = halves(ba, shared, "b", "a");
  const ValueId a_log = vector_of_heads(w, prefix + "A_log", Parameter::Start::log_uniform);
  const ValueId dt_bias = vector_of_heads(w, prefix + "dt_bias", Parameter::Start::ones);
  ValueId beta = b_a[0], decay = w.op("log_decay", {b_a[1], a_log, dt_bias}, {"decay"})[0];

  std::vector<Stream> streams{{q_rest[0], "q", 0, keys}, {k_rest[0], "k", keys, keys}, {v_z[0], "v", 2 * keys, values}};
  if (w.cp() > 1) {
    for (Stream& each : streams) each.x = heads_to_sequence(w, each.x, fmt::format("{}_heads", each.name));
    beta = heads_to_sequence(w, beta, "b_heads");
    decay = heads_to_sequence(w, decay, "decay_heads");
  }
  std::vector<ValueId> in;
  for (const Stream& each : streams) in.push_back(convolved(w, each, prefix));
  part.reset();

  ir::Attributes attributes{{"heads", heads / w.cp()},
                            {"key_heads", key_heads / w.cp()},
                            {"head_dim", key_dim},
                            {"value_dim", value_dim},
                            {"sequence", w.spec().sequence_length},
                            {"delta", int64_t{1}},
                            {"scale", 1 / std::sqrt(static_cast<double>(key_dim))},
                            {"epsilon", kUnitEpsilon},
                            {"sigmoid", int64_t{1}}};
  in.insert(in.end(), {decay, beta});
  ValueId o;
  if (w.caches()) {
    const ValueId states = w.cache_of_sequences("states", heads * key_dim * value_dim, w.wide());
    in.insert(in.end(), {ir::none, w.places()});
    o = w.op("cached_recur", in, {"recurred"}, std::move(attributes), "", {states})[0];
  } else {
    if (w.starts() != ir::none) in.insert(in.end(), {ir::none, w.starts()});
    o = w.op("recur", in, {w.cp() > 1 ? "recurred_heads" : "recurred"}, std::move(attributes))[0];
    if (w.cp() > 1) o = sequence_to_heads(w, o, "recurred");
  }
  const ValueId gain = w.parameter(
      {.name = prefix + "norm.weight", .part = Parameter::Part::norm, .start = Parameter::Start::ones}, w.wide(),
      {value_dim});
  const ValueId gated = w.op("gated_norm", {o, v_z[1], gain}, {"recurred_gated", "recurred_rstd"},
                             {{"epsilon", c.rms_norm_eps}, {"run", value_dim}})[0];
  return w.row_linear(gated, kAttention, prefix, "out_proj", values, "out_proj");
}

}  // namespace heddle::model
