#include "heddle/model/text/recurrent_heads.h"

#include <cmath>

#include "heddle/model/text/attend.h"

namespace heddle::model {

using ir::ValueId;

RecurrentHeads RecurrentHeads::of(const Writer& w) {
  const ModelConfig& c = w.config();
  return {c.linear_num_key_heads / w.tp(), c.linear_num_value_heads / w.tp(), c.linear_key_head_dim,
          c.linear_value_head_dim};
}

ValueId whole_sequences(Writer& w, ValueId x, const std::string& name) {
  return w.cp() > 1 ? heads_to_sequence(w, x, name + "_heads") : x;
}

ValueId convolved(Writer& w, ValueId x, const ConvolutionRows& rows, const std::string& prefix, bool has_bias) {
  const int64_t kernel = w.config().linear_conv_kernel_dim;
  const auto part = [&](const char* what, Parameter::Part of, double deviation, std::vector<int64_t> released,
                        std::vector<int64_t> shape) {
    return w.parameter({.name = fmt::format("{}conv_{}.{}", prefix, rows.name, what),
                        .part = of,
                        .start = deviation > 0 ? Parameter::Start::normal : Parameter::Start::zeros,
                        .deviation = deviation,
                        .cuts = {{0, ir::Axis::tp}},
                        .released = {{prefix + "conv1d." + what, 0, rows.width, rows.first, std::move(released)}}},
                       w.wide(), std::move(shape));
  };
  const ValueId weight = part("weight", Parameter::Part::convolution, w.config().initializer_range,
                              {rows.all, 1, kernel}, {rows.width, kernel});
  const ValueId bias = has_bias ? part("bias", Parameter::Part::attention, 0, {rows.all}, {rows.width}) : ir::none;
  return convolved(w, x, weight, bias, rows.name);
}

ValueId convolved(Writer& w, ValueId x, ValueId weight, ValueId bias, const std::string& name) {
  const std::string out = name + "_convolved";
  ir::Attributes attributes{{"sequence", w.spec().sequence_length}, {"silu", int64_t{1}}};
  if (w.caches()) {
    const int64_t kept = (w.config().linear_conv_kernel_dim - 1) * w.columns(x);
    const ValueId tails = w.cache_of_sequences("conv_" + name, kept, w.spec().dtype);
    return w.op("cached_conv", {x, weight, bias, w.places()}, {out}, attributes, "", {tails})[0];
  }
  if (w.cp() > 1) attributes.set("parts", w.cp());
  std::vector<ValueId> in{x, weight};
  if (bias != ir::none || w.starts() != ir::none) in.push_back(bias);
  if (w.starts() != ir::none) in.push_back(w.starts());
  return w.op("causal_conv", in, {out}, attributes)[0];
}

ValueId recurred(Writer& w, std::vector<ValueId> in, const RecurrentHeads& sizes, ir::Attributes rule) {
  constexpr size_t kBehindSkip = 6;
  rule.set("heads", sizes.heads / w.cp())
      .set("key_heads", sizes.key_heads / w.cp())
      .set("head_dim", sizes.key_dim)
      .set("value_dim", sizes.value_dim)
      .set("sequence", w.spec().sequence_length);
  if (w.cp() > 1 && in.size() == kBehindSkip) rule.set("parts", w.cp());
  const auto with = [&](ValueId last) {
    in.resize(kBehindSkip, ir::none);
    in.push_back(last);
  };
  if (w.caches()) {
    const int64_t width = sizes.heads * sizes.key_dim * sizes.value_dim;
    const ValueId states = w.cache_of_sequences("states", width, w.wide());
    with(w.places());
    return w.op("cached_recur", in, {"recurred"}, std::move(rule), "", {states})[0];
  }
  if (w.starts() != ir::none) with(w.starts());
  const ValueId o = w.op("recur", in, {w.cp() > 1 ? "recurred_heads" : "recurred"}, std::move(rule))[0];
  return w.cp() > 1 ? sequence_to_heads(w, o, "recurred") : o;
}

ValueId delta_rule(Writer& w, std::vector<ValueId> in, const RecurrentHeads& sizes) {
  constexpr double kUnitEpsilon = 1e-6;  // added to the squared length that queries and keys are divided by
  return recurred(w, std::move(in), sizes,
                  {{"delta", int64_t{1}},
                   {"scale", 1 / std::sqrt(static_cast<double>(sizes.key_dim))},
                   {"epsilon", kUnitEpsilon},
                   {"sigmoid", int64_t{1}}});
}

ValueId vector_of_heads(Writer& w, Parameter p, int64_t width) {
  p.part = Parameter::Part::attention;
  p.cuts = {{0, ir::Axis::tp}};
  return w.parameter(std::move(p), w.wide(), {width});
}

}  // namespace heddle::model
