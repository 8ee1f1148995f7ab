#include "heddle/model/text/recurrent_heads.h"

#include <cmath>

#include "heddle/model/text/attend.h"

namespace heddle::model {

using ir::ValueId;

namespace {

// The ranks of cp that have whole sequences of a part of the heads each; 1 without.
int64_t parts_of_heads(const Writer& w) { return w.has_pieces() ? 1 : w.cp(); }

// Rows of a sequence, or of a piece of one.
int64_t rows_of_sequence(const Writer& w) { return w.spec().sequence_length / (w.has_pieces() ? 2 * w.cp() : 1); }

// The states before this rank's pieces, and the transitions from which the gradients behind them are made. `in` and
// `rule` are those of `recur`.
std::pair<ValueId, ValueId> handed_states(Writer& w, const std::vector<ValueId>& in, const RecurrentHeads& sizes,
                                          const ir::Attributes& rule) {
  const auto at = [&](size_t i) { return i < in.size() ? in[i] : ir::none; };
  std::vector<ValueId> of_summary{in[1], in[2], at(3), at(4), w.piece_starts()};
  while (of_summary.back() == ir::none) of_summary.pop_back();
  const auto made = w.op("recur_summary", of_summary, {"transition", "update"}, rule);
  const ValueId transition = heads_to_sequence(w, made[0], "transition_heads", w.cp());
  const ValueId update = heads_to_sequence(w, made[1], "update_heads", w.cp());
  const int64_t heads = (sizes.heads + w.cp() - 1) / w.cp();
  const ValueId states = w.op(
      "scan_states", {transition, update}, {"states_heads"},
      {{"heads", heads}, {"pieces", 2 * w.cp()}, {"head_dim", sizes.key_dim}, {"value_dim", sizes.value_dim}})[0];
  return {sequence_to_heads(w, states, "states", w.cp()), transition};
}

// The rows ahead of this rank's pieces, as many as a convolution of `taps` beside the row itself sees.
ValueId rows_ahead(Writer& w, ValueId x, int64_t taps, const std::string& name) {
  const int64_t rows = std::min(taps, rows_of_sequence(w));
  const ValueId last =
      w.op("piece_ends", {x}, {name + "_last"}, {{"sequence", rows_of_sequence(w)}, {"count", rows}})[0];
  return w.op("rows_before", {gather_sequence(w, last, name + "_last", w.cp())}, {name + "_before"},
              {{"ranks", w.cp()}, {"rows", rows}, {"count", taps}})[0];
}

}  // namespace

RecurrentHeads RecurrentHeads::of(const Writer& w) {
  const ModelConfig& c = w.config();
  return {c.linear_num_key_heads / w.tp(), c.linear_num_value_heads / w.tp(), c.linear_key_head_dim,
          c.linear_value_head_dim};
}

ValueId whole_sequences(Writer& w, ValueId x, const std::string& name) {
  return parts_of_heads(w) > 1 ? heads_to_sequence(w, x, name + "_heads", w.cp()) : x;
}

ValueId own_rows(Writer& w, ValueId x, const std::string& name) {
  return parts_of_heads(w) > 1 ? sequence_to_heads(w, x, name, w.cp()) : x;
}

ValueId convolved(Writer& w, ValueId x, const ConvolutionRows& rows, const std::string& prefix, bool has_bias,
                  bool has_silu) {
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
  return convolved(w, x, weight, bias, rows.name, has_silu);
}

ValueId convolved(Writer& w, ValueId x, ValueId weight, ValueId bias, const std::string& name, bool has_silu,
                  int64_t dilation) {
  const std::string out = name + "_convolved";
  ir::Attributes attributes{{"sequence", rows_of_sequence(w)}};
  if (has_silu) attributes.set("silu", int64_t{1});
  if (dilation > 1) attributes.set("dilation", dilation);
  const int64_t taps = (w.columns(weight) - 1) * dilation;
  if (w.caches()) {
    const int64_t kept = taps * w.columns(x);
    const ValueId tails = w.cache_of_sequences("conv_" + name, kept, w.spec().dtype);
    return w.op("cached_conv", {x, weight, bias, w.places()}, {out}, attributes, "", {tails})[0];
  }
  if (parts_of_heads(w) > 1) attributes.set("parts", parts_of_heads(w));
  std::vector<ValueId> in{x, weight, bias, w.piece_starts()};
  if (w.has_pieces() && taps > 0) {
    attributes.set("ranks", w.cp());
    in.push_back(rows_ahead(w, x, taps, name));
  }
  while (in.back() == ir::none) in.pop_back();
  return w.op("causal_conv", in, {out}, attributes)[0];
}

ValueId recurred(Writer& w, std::vector<ValueId> in, const RecurrentHeads& sizes, ir::Attributes rule) {
  constexpr size_t kBehindSkip = 6;
  const int64_t parts = parts_of_heads(w);
  rule.set("heads", sizes.heads / parts)
      .set("key_heads", sizes.key_heads / parts)
      .set("head_dim", sizes.key_dim)
      .set("value_dim", sizes.value_dim)
      .set("sequence", rows_of_sequence(w));
  if (parts > 1 && in.size() == kBehindSkip) rule.set("parts", parts);
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
  if (w.has_pieces()) {
    rule.set("ranks", w.cp());
    const auto [states, transition] = handed_states(w, in, sizes, rule);
    with(w.piece_starts());
    in.push_back(states);
    return w.op("recur", in, {"recurred"}, std::move(rule), "", {}, {transition})[0];
  }
  if (w.starts() != ir::none) with(w.starts());
  const ValueId o = w.op("recur", in, {parts > 1 ? "recurred_heads" : "recurred"}, std::move(rule))[0];
  return own_rows(w, o, "recurred");
}

ValueId delta_rule(Writer& w, std::vector<ValueId> in, const RecurrentHeads& sizes) {
  constexpr double kUnitEpsilon = 1e-6;  // added to the squared length that queries and keys are divided by
  return recurred(w, std::move(in), sizes,
                  {{"delta", int64_t{1}},
                   {"scale", 1 / std::sqrt(static_cast<double>(sizes.key_dim))},
                   {"epsilon", kUnitEpsilon},
                   {"sigmoid", int64_t{w.config().linear_double_beta ? 2 : 1}}});
}

ValueId vector_of_heads(Writer& w, Parameter p, int64_t width) {
  p.part = Parameter::Part::attention;
  p.cuts = {{0, ir::Axis::tp}};
  return w.parameter(std::move(p), w.wide(), {width});
}

}  // namespace heddle::model
