#include "heddle/model/text/gated_delta.h"

#include <optional>

#include "heddle/model/text/recurrent_heads.h"

namespace heddle::model {

using ir::ValueId;

namespace {

constexpr auto kAttention = Parameter::Part::attention;

// The three that pass through the convolution: rows of conv1d.weight from `first` on.
struct Stream {
  ValueId x;
  const char* name;
  int64_t first, width;  // of the whole model
};

ValueId weight_of(Writer& w, const Stream& stream, const std::string& prefix) {
  const ModelConfig& c = w.config();
  const int64_t kernel = c.linear_conv_kernel_dim, all = 2 * c.linear_keys_width() + c.linear_values_width();
  return w.parameter({.name = fmt::format("{}conv_{}.weight", prefix, stream.name),
                      .part = Parameter::Part::convolution,
                      .deviation = c.initializer_range,
                      .cuts = {{0, ir::Axis::tp}},
                      .released = {{prefix + "conv1d.weight", 0, stream.width, stream.first, {all, 1, kernel}}}},
                     w.wide(), {stream.width, kernel});
}

}  // namespace

ValueId gated_delta(Writer& w, ValueId n_TH, const std::string& prefix) {
  const ModelConfig& c = w.config();
  const RecurrentHeads sizes = RecurrentHeads::of(w);
  const int64_t shared = sizes.heads / sizes.key_heads, all_heads = c.linear_num_value_heads;
  const int64_t keys = c.linear_keys_width(), values = c.linear_values_width();
  const ValueId n_UH = w.gather(n_TH, "n");
  std::optional<Writer::Part> part(std::in_place, w, OpPart::queries_keys);
  // Each key head has its query, its key, the values of the heads that share it, and their gates.
  const auto halves = [&](ValueId x, int64_t first, const char* left, const char* right) {
    return w.op("split", {x}, {left, right}, {{"first", first}, {"runs", sizes.key_heads}});
  };
  const ValueId mixed = w.column_linear(n_UH, kAttention, prefix, "in_proj_qkvz", 2 * keys + 2 * values);
  const auto q_rest = halves(mixed, sizes.key_dim, "q_raw", "kvz");
  const auto k_rest = halves(q_rest[1], sizes.key_dim, "k_raw", "vz");
  const auto v_z = halves(k_rest[1], shared * sizes.value_dim, "v_raw", "z");
  const ValueId ba = w.column_linear(n_UH, kAttention, prefix, "in_proj_ba", 2 * all_heads);
  const auto b_a = halves(ba, shared, "b", "a");
  const ValueId a_log = vector_of_heads(
      w, {.name = prefix + "A_log", .start = Parameter::Start::log_uniform, .deviation = kMostDecay}, all_heads);
  const ValueId dt_bias =
      vector_of_heads(w, {.name = prefix + "dt_bias", .start = Parameter::Start::ones}, all_heads);
  ValueId beta = b_a[0], decay = w.op("log_decay", {b_a[1], a_log, dt_bias}, {"decay"})[0];

  std::vector<Stream> streams{{q_rest[0], "q", 0, keys}, {k_rest[0], "k", keys, keys}, {v_z[0], "v", 2 * keys, values}};
  for (Stream& each : streams) each.x = whole_sequences(w, each.x, each.name);
  beta = whole_sequences(w, beta, "b");
  decay = whole_sequences(w, decay, "decay");
  std::vector<ValueId> in;
  for (const Stream& each : streams) in.push_back(convolved(w, each.x, weight_of(w, each, prefix), each.name));
  part.reset();

  in.insert(in.end(), {decay, beta});
  const ValueId o = delta_rule(w, std::move(in), sizes);
  const ValueId gain = w.parameter(
      {.name = prefix + "norm.weight", .part = Parameter::Part::norm, .start = Parameter::Start::ones}, w.wide(),
      {sizes.value_dim});
  const ValueId gated = w.op("gated_norm", {o, v_z[1], gain}, {"recurred_gated", "recurred_rstd"},
                             {{"epsilon", c.rms_norm_eps}, {"run", sizes.value_dim}})[0];
  return w.row_linear(gated, kAttention, prefix, "out_proj", values, "out_proj");
}

}  // namespace heddle::model
