#include "heddle/model/text/gated_delta.h"

#include <optional>

#include "heddle/model/text/recurrent_heads.h"

namespace heddle::model {

using ir::ValueId;

namespace {

// The three that pass through the convolution.
struct DeltaStream {
  ValueId x;
  const char* name;
  int64_t first, width;  // of the whole model
};

// A recurrent layer's projections of its rows: queries, keys and values ahead of the convolution, the gate of the
// output, and the numbers a head of step and decay.
struct Projections {
  ValueId q, k, v, z, b, a;
};

// Each key head has its query, its key, the values of the heads that share it, and their gates.
Projections by_heads(Writer& w, ValueId n_UH, const RecurrentHeads& sizes, const std::string& prefix) {
  const ModelConfig& c = w.config();
  const int64_t shared = sizes.heads / sizes.key_heads;
  const auto halves = [&](ValueId x, int64_t first, const char* left, const char* right) {
    return w.op("split", {x}, {left, right}, {{"first", first}, {"runs", sizes.key_heads}});
  };
  const int64_t width = 2 * c.linear_keys_width() + 2 * c.linear_values_width();
  const ValueId mixed = w.column_linear(n_UH, kAttention, prefix, "in_proj_qkvz", width);
  const auto q_rest = halves(mixed, sizes.key_dim, "q_raw", "kvz");
  const auto k_rest = halves(q_rest[1], sizes.key_dim, "k_raw", "vz");
  const auto v_z = halves(k_rest[1], shared * sizes.value_dim, "v_raw", "z");
  const ValueId ba = w.column_linear(n_UH, kAttention, prefix, "in_proj_ba", 2 * c.linear_num_value_heads);
  const auto b_a = halves(ba, shared, "b", "a");
  return {q_rest[0], k_rest[0], v_z[0], v_z[1], b_a[0], b_a[1]};
}

// Queries, keys and values are rows of one tensor of the files, or tensors by themselves under other names.
Projections apart(Writer& w, ValueId n_UH, const std::string& prefix) {
  const ModelConfig& c = w.config();
  const int64_t keys = c.linear_keys_width(), values = c.linear_values_width(), all = 2 * keys + values;
  const auto joint = [&](const std::string& name, int64_t first, int64_t width) {
    const ValueId weight =
        w.matrix(kAttention, prefix + "in_proj_" + name + ".weight", width, c.hidden_size,
                 {{prefix + "in_proj_qkv.weight", 0, width, first, {all, c.hidden_size}}}, {{0, ir::Axis::tp}});
    return w.op("linear", {n_UH, weight}, {"in_proj_" + name})[0];
  };
  const auto alone = [&](const char* letter, const std::string& name, int64_t width) {
    const ValueId weight =
        w.matrix(kAttention, prefix + name + ".weight", width, c.hidden_size, {}, {{0, ir::Axis::tp}});
    return w.op("linear", {n_UH, weight}, {fmt::format("in_proj_{}", letter)})[0];
  };
  const int64_t heads = c.linear_num_value_heads;
  if (c.linear_tensors_apart)
    return {alone("q", "q_proj", keys),   alone("k", "k_proj", keys),  alone("v", "v_proj", values),
            alone("z", "g_proj", values), alone("b", "b_proj", heads), alone("a", "a_proj", heads)};
  return {joint("q", 0, keys),
          joint("k", keys, keys),
          joint("v", 2 * keys, values),
          alone("z", "in_proj_z", values),
          alone("b", "in_proj_b", heads),
          alone("a", "in_proj_a", heads)};
}

// The convolution's weight of queries, keys or values, a tensor of the files by itself.
ValueId own_convolution(Writer& w, const std::string& prefix, const DeltaStream& of) {
  const ModelConfig& c = w.config();
  const std::string name = fmt::format("{}{}_conv1d.weight", prefix, of.name);
  return w.parameter({.name = name,
                      .part = Parameter::Part::convolution,
                      .deviation = c.initializer_range,
                      .cuts = {{0, ir::Axis::tp}},
                      .released = {{name, 0, of.width, 0, {of.width, 1, c.linear_conv_kernel_dim}}}},
                     w.wide(), {of.width, c.linear_conv_kernel_dim});
}

}  // namespace

ValueId gated_delta(Writer& w, ValueId n_TH, const std::string& prefix) {
  const ModelConfig& c = w.config();
  const RecurrentHeads sizes = RecurrentHeads::of(w);
  const int64_t all_heads = c.linear_num_value_heads;
  const int64_t keys = c.linear_keys_width(), values = c.linear_values_width();
  const ValueId n_UH = w.gather(n_TH, "n");
  std::optional<Writer::Part> part(std::in_place, w, OpPart::queries_keys);
  const Projections made = c.linear_projections_apart ? apart(w, n_UH, prefix) : by_heads(w, n_UH, sizes, prefix);
  const ValueId a_log = vector_of_heads(
      w, {.name = prefix + "A_log", .start = Parameter::Start::log_uniform, .deviation = kMostDecay}, all_heads);
  const ValueId dt_bias =
      vector_of_heads(w, {.name = prefix + "dt_bias", .start = Parameter::Start::ones}, all_heads);
  ValueId beta = made.b, decay = w.op("log_decay", {made.a, a_log, dt_bias}, {"decay"})[0];

  std::vector<DeltaStream> streams{
      {made.q, "q", 0, keys}, {made.k, "k", keys, keys}, {made.v, "v", 2 * keys, values}};
  for (DeltaStream& each : streams) each.x = whole_sequences(w, each.x, each.name);
  beta = whole_sequences(w, beta, "b");
  decay = whole_sequences(w, decay, "decay");
  std::vector<ValueId> in;
  for (const DeltaStream& each : streams) {
    if (c.linear_tensors_apart) {
      in.push_back(convolved(w, each.x, own_convolution(w, prefix, each), ir::none, each.name));
      continue;
    }
    const ConvolutionRows rows{
        .name = each.name, .width = each.width, .first = each.first, .all = 2 * keys + values};
    in.push_back(convolved(w, each.x, rows, prefix));
  }
  part.reset();

  in.insert(in.end(), {decay, beta});
  const ValueId o = delta_rule(w, std::move(in), sizes);
  const ValueId gain = w.parameter({.name = prefix + (c.linear_tensors_apart ? "o_norm.weight" : "norm.weight"),
                                    .part = Parameter::Part::norm,
                                    .start = Parameter::Start::ones},
                                   w.wide(), {sizes.value_dim});
  ir::Attributes norm{{"epsilon", c.linear_norm_epsilon()}, {"run", sizes.value_dim}};
  if (c.linear_sigmoid_gate) norm.set("sigmoid", int64_t{1});
  const ValueId gated =
      w.op("gated_norm", {o, made.z, gain}, {"recurred_gated", "recurred_rstd"}, std::move(norm))[0];
  return w.row_linear(gated, kAttention, prefix, c.linear_tensors_apart ? "o_proj" : "out_proj", values,
                      "out_proj");
}

}  // namespace heddle::model
