#include "heddle/model/text/kimi_delta.h"

#include <optional>

#include "heddle/model/text/recurrent_heads.h"

namespace heddle::model {

using ir::ValueId;

namespace {

ValueId convolution(Writer& w, const std::string& prefix, const std::string& letter) {
  const ModelConfig& c = w.config();
  const int64_t width = c.linear_keys_width(), kernel = c.linear_conv_kernel_dim;
  const std::string name = fmt::format("{}{}_conv1d.weight", prefix, letter);
  return w.parameter({.name = name,
                      .part = Parameter::Part::convolution,
                      .deviation = c.initializer_range,
                      .cuts = {{0, ir::Axis::tp}},
                      .released = {{name, 0, width, 0, {width, 1, kernel}}}},
                     w.wide(), {width, kernel});
}

}  // namespace

ValueId kimi_delta(Writer& w, ValueId n_TH, const std::string& prefix) {
  const ModelConfig& c = w.config();
  const RecurrentHeads sizes = RecurrentHeads::of(w);
  const int64_t all_heads = c.linear_num_value_heads, width = c.linear_keys_width();
  const bool full = c.linear_full_gates;
  const auto narrow = [&](const std::string& letter) {
    if (full) return ir::none;
    const std::string name = letter + "_a_proj";
    return w.gather(w.linear(n_TH, kAttention, prefix, name, sizes.key_dim), name);
  };
  const ValueId f_narrow = narrow("f"), g_narrow = narrow("g");
  const ValueId n_UH = w.gather(n_TH, "n");
  const auto wide = [&](ValueId from, const char* letter) {
    return w.column_linear(full ? n_UH : from, kAttention, prefix,
                           fmt::format("{}_{}", letter, full ? "proj" : "b_proj"), width);
  };
  std::optional<Writer::Part> part(std::in_place, w, OpPart::queries_keys);
  std::vector<ValueId> in;
  for (const char* letter : {"q", "k", "v"}) {
    const ValueId x = w.column_linear(n_UH, kAttention, prefix, fmt::format("{}_proj", letter), width);
    in.push_back(convolved(w, whole_sequences(w, x, letter), convolution(w, prefix, letter), ir::none, letter));
  }
  // Kimi-Linear's files, of which no model selects keys, have A_log with sizes of one around it.
  const std::string a_log_name = prefix + "A_log";
  const bool as_kimi = !full && c.linear_decay_least == 0 && !c.selects();
  const std::vector<int64_t> a_log_shape =
      as_kimi ? std::vector<int64_t>{1, 1, all_heads, 1} : std::vector<int64_t>{all_heads};
  const ValueId a_log = vector_of_heads(w,
                                        {.name = a_log_name,
                                         .start = Parameter::Start::log_uniform,
                                         .deviation = kMostDecay,
                                         .released = {{a_log_name, 0, all_heads, 0, a_log_shape}}},
                                        all_heads);
  const ValueId dt_bias = vector_of_heads(
      w, {.name = prefix + "dt_bias", .start = Parameter::Start::time_step, .deviation = kMostStep}, width);
  const ValueId f = wide(f_narrow, "f");
  ir::Attributes bound;
  if (c.linear_decay_least < 0) bound.set("bound", c.linear_decay_least);
  const ValueId decay = w.op("log_decay", {f, a_log, dt_bias}, {"decay"}, std::move(bound))[0];
  const ValueId beta = w.column_linear(n_UH, kAttention, prefix, "b_proj", all_heads);
  in.insert(in.end(), {whole_sequences(w, decay, "decay"), whole_sequences(w, beta, "b")});
  const ValueId gate = wide(g_narrow, "g");
  part.reset();

  const ValueId o = delta_rule(w, std::move(in), sizes);
  const ValueId gain = w.parameter(
      {.name = prefix + "o_norm.weight", .part = Parameter::Part::norm, .start = Parameter::Start::ones}, w.wide(),
      {sizes.value_dim});
  const ValueId gated =
      w.op("gated_norm", {o, gate, gain}, {"recurred_gated", "recurred_rstd"},
           {{"epsilon", c.linear_norm_epsilon()}, {"run", sizes.value_dim}, {"sigmoid", int64_t{1}}})[0];
  return w.row_linear(gated, kAttention, prefix, "o_proj", width, "o_proj");
}

}  // namespace heddle::model
