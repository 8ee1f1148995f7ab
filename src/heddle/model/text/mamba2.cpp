#include "heddle/model/text/mamba2.h"

#include <optional>

#include "heddle/model/text/recurrent_heads.h"

namespace heddle::model {

using ir::ValueId;

namespace {

// A part that passes through the convolution. Its rows in conv1d begin at `first`.
struct Mamba2Stream {
  ValueId x;
  const char* name;
  int64_t first, width;  // of the whole model
  double factor;
};

// Factors of z, x, B, C and the time step.
std::vector<double> part_factors(const ModelConfig& c) {
  constexpr size_t kParts = 5;
  return factors_of(c.linear_part_multipliers).value_or(std::vector<double>(kParts, 1));
}

// The heads' outputs times silu(z). Each group is normed, or nothing is.
ValueId gated_by_z(Writer& w, ValueId o, ValueId z, const std::string& prefix) {
  const ModelConfig& c = w.config();
  if (c.linear_norm == RecurrentNorm::none) {
    const ValueId gate = w.op("silu", {z}, {"z_silu"})[0];
    return w.op("multiply", {o, gate}, {"recurred_gated"})[0];
  }
  const int64_t values = c.linear_values_width();
  const ValueId gain = w.parameter({.name = prefix + "norm.weight",
                                    .part = Parameter::Part::norm,
                                    .start = Parameter::Start::ones,
                                    .cuts = {{0, ir::Axis::tp}}},
                                   w.wide(), {values});
  ir::Attributes norm{{"epsilon", c.linear_norm_epsilon()}, {"run", values / c.linear_num_key_heads}};
  if (c.linear_norm == RecurrentNorm::gated) norm.set("gate_first", int64_t{1});
  return w.op("gated_norm", {o, z, gain}, {"recurred_gated", "recurred_rstd"}, std::move(norm))[0];
}

}  // namespace

ValueId mamba2(Writer& w, ValueId n_TH, const std::string& prefix) {
  const ModelConfig& c = w.config();
  const RecurrentHeads sizes = RecurrentHeads::of(w);
  const int64_t all_heads = c.linear_num_value_heads, keys = c.linear_keys_width(),
                values = c.linear_values_width();
  const int64_t convolved_width = values + 2 * keys, all = values + convolved_width + all_heads;
  const ValueId all_UH = w.gather(n_TH, "n");
  std::optional<Writer::Part> part(std::in_place, w, OpPart::queries_keys);
  const ValueId n_UH = w.scaled(all_UH, c.linear_in_multiplier, "n_recurred");
  const std::vector<double> factors = part_factors(c);
  const std::vector<Cut> by_parts{
      {.dim = 0, .axis = ir::Axis::tp, .runs = {values, values, keys, keys, all_heads}}};
  const ValueId weight = w.matrix(kAttention, prefix + "in_proj.weight", all, c.hidden_size, {}, by_parts);
  ValueId made = w.op("linear", {n_UH, weight}, {c.linear_bias ? "in_proj_product" : "in_proj"})[0];
  if (c.linear_bias) made = w.add_bias(made, kAttention, prefix + "in_proj.bias", all, "in_proj", {}, by_parts);
  const auto behind = [&](ValueId rows, int64_t width, const char* name, const char* rest) {
    return w.op("split", {rows}, {name, rest}, {{"first", width / w.tp()}});
  };
  const auto z_rest = behind(made, values, "z", "xbcdt");
  const auto x_rest = behind(z_rest[1], values, "x_raw", "bcdt");
  const auto b_rest = behind(x_rest[1], keys, "b_raw", "cdt"), c_dt = behind(b_rest[1], keys, "c_raw", "dt");
  std::vector<ValueId> in;
  for (const Mamba2Stream& each : {Mamba2Stream{c_dt[0], "c", values + keys, keys, factors[3]},
                                   {b_rest[0], "b", values, keys, factors[2]},
                                   {x_rest[0], "x", 0, values, factors[1]}}) {
    const ConvolutionRows rows{.name = each.name, .width = each.width, .first = each.first, .all = convolved_width};
    const ValueId x = w.scaled(each.x, each.factor, fmt::format("{}_scaled", each.name));
    in.push_back(convolved(w, whole_sequences(w, x, each.name), rows, prefix, true));
  }
  const auto of_heads = [&](const char* name, Parameter p) {
    p.name = prefix + name;
    return vector_of_heads(w, std::move(p), all_heads);
  };
  const ValueId a_log = of_heads("A_log", {.start = Parameter::Start::log_uniform, .deviation = kMostDecay});
  const ValueId dt_bias = of_heads("dt_bias", {.start = Parameter::Start::time_step, .deviation = kMostStep});
  const ValueId skip = of_heads("D", {.start = Parameter::Start::ones});
  ir::Attributes bounds{{"step", int64_t{1}}, {"least", c.linear_step_least}};
  if (c.linear_step_most > 0) bounds.set("most", c.linear_step_most);
  const ValueId dt = w.scaled(c_dt[1], factors[4], "dt_scaled"), z = w.scaled(z_rest[0], factors[0], "z_scaled");
  const auto decay_step = w.op("log_decay", {dt, a_log, dt_bias}, {"decay", "step"}, std::move(bounds));
  in.insert(in.end(),
            {whole_sequences(w, decay_step[0], "decay"), whole_sequences(w, decay_step[1], "step"), skip});
  part.reset();

  const ValueId o = recurred(w, std::move(in), sizes, {{"delta", int64_t{0}}, {"scale", 1.0}});
  return w.row_linear(gated_by_z(w, o, z, prefix), kAttention, prefix, "out_proj", values, "out_proj",
                      c.linear_bias);
}

}  // namespace heddle::model
