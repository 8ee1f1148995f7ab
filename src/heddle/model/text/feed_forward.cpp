#include "heddle/model/text/feed_forward.h"

namespace heddle::model {

using ir::ValueId;

namespace {

ValueId gelu(Writer& w, ValueId x, bool tanh, const std::string& name) {
  ir::Attributes attributes;
  if (tanh) attributes.set("tanh", int64_t{1});
  return w.op("gelu", {x}, {name}, std::move(attributes))[0];
}

ValueId ungated(Writer& w, ValueId x_TH, const std::string& prefix, int64_t width, const std::string& name,
                Parameter::Part of, bool bias) {
  const ValueId u = w.column_linear(w.gather(x_TH, name + "_in"), of, prefix, "up_proj", width, bias);
  return w.row_linear(activation(w, u, 0, name + "_a"), of, prefix, "down_proj", width, name, bias);
}

}  // namespace

ValueId gate_function(Writer& w, ValueId x, const std::string& name) {
  switch (w.config().activation) {
    case Activation::swiglu: return w.op("silu", {x}, {name})[0];
    case Activation::relu2: return w.op("squared_relu", {x}, {name})[0];
    case Activation::gelu:
    case Activation::geglu: return gelu(w, x, false, name);
    case Activation::gelu_tanh:
    case Activation::geglu_tanh: break;
  }
  return gelu(w, x, true, name);
}

ValueId activation(Writer& w, ValueId u, double limit, const std::string& name, double factor) {
  const ModelConfig& c = w.config();
  if (c.activation == Activation::relu2) return w.op("squared_relu", {u}, {name})[0];
  if (!c.has_gated_mlp()) return gelu(w, u, c.activation == Activation::gelu_tanh, name);
  if (c.swiglu_limit > 0)
    return w.op("clamped_swiglu", {u}, {name}, {{"alpha", c.swiglu_alpha}, {"limit", c.swiglu_limit}})[0];
  const int64_t width = w.columns(u) / 2;
  const auto parts = w.op("split", {u}, {name + "_gate", name + "_up"}, {{"first", width}});
  ValueId gate = w.scaled(parts[0], factor, name + "_gate_scaled");
  if (c.activation != Activation::geglu && c.activation != Activation::geglu_tanh) {
    if (limit > 0 && c.limited_gates)
      gate = w.op("clip", {gate}, {name + "_gate_cut"}, {{"limit", limit}, {"below", int64_t{0}}})[0];
    const ValueId s = w.op("silu", {gate}, {name + "_silu"})[0];
    if (limit == 0) return w.op("multiply", {s, parts[1]}, {name})[0];
    const ValueId g =
        c.limited_gates ? s : w.op("clip", {s}, {name + "_gate_cut"}, {{"limit", limit}, {"below", int64_t{0}}})[0];
    const ValueId v = w.op("clip", {parts[1]}, {name + "_up_cut"}, {{"limit", limit}, {"below", int64_t{1}}})[0];
    return w.op("multiply", {g, v}, {name})[0];
  }
  const ValueId g = gelu(w, gate, c.activation == Activation::geglu_tanh, name + "_gelu");
  return w.op("multiply", {g, parts[1]}, {name})[0];
}

ValueId feed_forward(Writer& w, ValueId x_TH, const std::string& prefix, int64_t width, const std::string& name,
                     OpPart part) {
  const Writer::Part while_here(w, part);
  const Parameter::Part of = part == OpPart::shared ? Parameter::Part::shared_experts : Parameter::Part::mlp;
  const bool bias = part == OpPart::mlp && w.config().mlp_bias;
  if (!w.config().has_gated_mlp()) return ungated(w, x_TH, prefix, width, name, of, bias);
  const ValueId w_gate_up = w.matrix(
      of, prefix + "gate_up_proj.weight", 2 * width, w.config().hidden_size,
      {{prefix + "gate_proj.weight", 0, width}, {prefix + "up_proj.weight", width, width}}, {{0, ir::Axis::tp, 2}});
  ValueId u = w.op("linear", {w.gather(x_TH, name + "_in"), w_gate_up}, {name + (bias ? "_u_product" : "_u")})[0];
  if (bias) {
    u = w.add_bias(u, of, prefix + "gate_up_proj.bias", 2 * width, name + "_u",
                   {{prefix + "gate_proj.bias", 0, width}, {prefix + "up_proj.bias", width, width}},
                   {{0, ir::Axis::tp, 2}});
  }
  const double factor = part == OpPart::mlp ? w.config().mlp_gate_multiplier : 1;
  const ValueId a = activation(w, u, w.config().mlp_limit_of(w.layer()), name + "_a", factor);
  return w.row_linear(a, of, prefix, "down_proj", width, name, bias);
}

}  // namespace heddle::model
