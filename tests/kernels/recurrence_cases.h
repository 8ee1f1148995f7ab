// Cases of recurrences along the sequence and of what stands around them (ops/recurrence.cpp).
#pragma once

#include "tests/kernels/op_cases.h"

namespace heddle::op_runner {

enum class Decays : uint8_t { none, of_heads, of_channels, slopes };
enum class Betas : uint8_t { none, narrow, wide, sigmoid, twice_sigmoid };

struct Recurrence {
  std::string name;
  int64_t S, h, hk, dk, dv;
  bool delta;
  Decays decays;
  Betas betas;
  bool normed = false, documents = false, skip = false;
  int64_t parts = 1, part = 0;
};

/// Log decays between −1 and 0, with some so strong that nothing is left.
inline Tensor random_decays(Dtype A, int64_t rows, int64_t columns, uint64_t seed) {
  Tensor decays = random_tensor(A, {rows, columns}, seed, 0.4);
  for (size_t i = 0; i < decays.values.size(); ++i)
    decays.values[i] = i % 37 == 11 ? -60.0 : -std::abs(decays.values[i]);
  return decays;
}

inline OpCase recurrence_case(const Recurrence& r, Dtype X, int64_t B) {
  const int64_t T = B * r.S;
  OpCase op{r.name,
            "recur",
            {activation(random_tensor(X, {T, r.hk * r.dk}, 81)),
             activation(random_tensor(X, {T, r.hk * r.dk}, 82, r.normed || !r.delta ? 1 : 0.25)),
             activation(random_tensor(X, {T, r.h * r.dv}, 83))},
            {{"heads", r.h},
             {"key_heads", r.hk},
             {"head_dim", r.dk},
             {"value_dim", r.dv},
             {"sequence", r.S},
             {"delta", int64_t{r.delta}},
             {"scale", 0.4}},
            {}};
  const bool decays = r.decays == Decays::of_heads || r.decays == Decays::of_channels;
  const int64_t width = r.decays == Decays::of_channels ? r.h * r.dk : r.h;
  op.in.push_back(decays ? activation(random_decays(wide(X), T, width, 84)) : absent());
  if (r.betas == Betas::none) {
    op.in.push_back(absent());
  } else {
    Tensor beta = random_tensor(r.betas == Betas::wide ? wide(X) : X, {T, r.h}, 85);
    for (double& b : beta.values) b = r.betas >= Betas::sigmoid ? b : std::min(1.0, std::abs(b));
    op.in.push_back(activation(beta));
  }
  op.in.push_back(r.skip ? weight(random_tensor(wide(X), {r.h * r.parts}, 86)) : absent());
  op.in.push_back(r.documents ? Operand{document_starts(B, r.S), Role::input} : absent());
  if (r.betas >= Betas::sigmoid) op.attributes.set("sigmoid", int64_t{r.betas == Betas::sigmoid ? 1 : 2});
  if (r.normed) op.attributes.set("epsilon", 1e-3);
  if (r.decays == Decays::slopes) op.attributes.set("slopes", 0.7).set("slope_heads", r.h * r.parts);
  if (r.parts > 1) {
    op.attributes.set("parts", r.parts);
    op.place.index[static_cast<size_t>(ir::Axis::cp)] = static_cast<int>(r.part);
    op.place.degree[static_cast<size_t>(ir::Axis::cp)] = static_cast<int>(r.parts);
  }
  return op;
}

inline OpCase convolution_case(const std::string& name, Dtype X, int64_t B, int64_t S, int64_t C, int64_t K,
                               bool silu, bool bias, bool documents, int64_t parts = 1, int64_t dilation = 1) {
  OpCase op{name,
            "causal_conv",
            {activation(random_tensor(X, {B * S, C}, 91)), weight(random_tensor(wide(X), {C * parts, K}, 92)),
             bias ? weight(random_tensor(wide(X), {C * parts}, 93)) : absent(),
             documents ? Operand{document_starts(B, S), Role::input} : absent()},
            {{"sequence", S}, {"silu", int64_t{silu}}, {"parts", parts}},
            {}};
  if (dilation > 1) op.attributes.set("dilation", dilation);
  op.place.index[static_cast<size_t>(ir::Axis::cp)] = static_cast<int>(parts - 1);
  op.place.degree[static_cast<size_t>(ir::Axis::cp)] = static_cast<int>(parts);
  return op;
}

inline OpCase log_decay_case(const std::string& name, Dtype X, int64_t T, int64_t h, int64_t run, bool bias,
                             bool step) {
  OpCase op{name,
            "log_decay",
            {activation(random_tensor(X, {T, h * run}, 94, 2)), weight(random_tensor(wide(X), {h}, 95)),
             bias ? weight(random_tensor(wide(X), {h * run}, 96)) : absent()},
            {},
            {}};
  if (step) op.attributes.set("step", int64_t{1}).set("least", 0.05).set("most", 2.5);
  return op;
}

inline OpCase bounded_decay_case(const std::string& name, Dtype X, int64_t T, int64_t h, int64_t run, bool bias) {
  OpCase op = log_decay_case(name, X, T, h, run, bias, false);
  op.attributes.set("bound", -5.0);
  return op;
}

inline OpCase gated_norm_case(const std::string& name, Dtype X, int64_t T, int64_t columns, int64_t gains,
                              int64_t run, bool gate_first, bool sigmoid) {
  return OpCase{
      name,
      "gated_norm",
      {activation(random_tensor(X, {T, columns}, 97)), activation(random_tensor(X, {T, columns}, 98)),
       weight(random_tensor(wide(X), {gains}, 99))},
      {{"epsilon", 1e-2}, {"run", run}, {"gate_first", int64_t{gate_first}}, {"sigmoid", int64_t{sigmoid}}},
      {}};
}

inline std::vector<CaseMaker> recurrence_cases() {
  std::vector<CaseMaker> cases;
  for (const Recurrence& r : std::vector<Recurrence>{{.name = "recur_delta",
                             .S = 9,
                             .h = 2,
                             .hk = 2,
                             .dk = 5,
                             .dv = 3,
                             .delta = true,
                             .decays = Decays::of_heads,
                             .betas = Betas::narrow},
                                                     {.name = "recur_delta_alone",
                                                     .S = 5,
                                                     .h = 1,
                                                     .hk = 1,
                                                     .dk = 3,
                                                     .dv = 4,
                                                     .delta = true,
                                                     .decays = Decays::none,
                                                     .betas = Betas::none},
                                                     {.name = "recur_gated_delta",
                                                     .S = 71,
                                                     .h = 4,
                                                     .hk = 2,
                                                     .dk = 6,
                                                     .dv = 5,
                                                     .delta = true,
                                                     .decays = Decays::of_heads,
                                                     .betas = Betas::sigmoid,
                                                     .normed = true,
                                                     .documents = true},
                                                     {.name = "recur_channels",
                                                     .S = 70,
                                                     .h = 2,
                                                     .hk = 2,
                                                     .dk = 5,
                                                     .dv = 6,
                                                     .delta = true,
                                                     .decays = Decays::of_channels,
                                                     .betas = Betas::sigmoid,
                                                     .normed = true},
                                                     {.name = "recur_channels_documents",
                                                     .S = 37,
                                                     .h = 2,
                                                     .hk = 1,
                                                     .dk = 4,
                                                     .dv = 3,
                                                     .delta = false,
                                                     .decays = Decays::of_channels,
                                                     .betas = Betas::wide,
                                                     .documents = true},
                                                     {.name = "recur_state_space",
                                                     .S = 67,
                                                     .h = 6,
                                                     .hk = 2,
                                                     .dk = 4,
                                                     .dv = 5,
                                                     .delta = false,
                                                     .decays = Decays::of_heads,
                                                     .betas = Betas::wide,
                                                     .documents = true,
                                                     .skip = true},
                                                     {.name = "recur_twice_beta",
                                                     .S = 66,
                                                     .h = 3,
                                                     .hk = 3,
                                                     .dk = 3,
                                                     .dv = 4,
                                                     .delta = true,
                                                     .decays = Decays::of_heads,
                                                     .betas = Betas::twice_sigmoid,
                                                     .normed = true},
                                                     {.name = "recur_slopes",
                                                     .S = 66,
                                                     .h = 3,
                                                     .hk = 3,
                                                     .dk = 3,
                                                     .dv = 3,
                                                     .delta = false,
                                                     .decays = Decays::slopes,
                                                     .betas = Betas::none},
                                                     {.name = "recur_part",
                                                     .S = 6,
                                                     .h = 2,
                                                     .hk = 1,
                                                     .dk = 3,
                                                     .dv = 3,
                                                     .delta = false,
                                                     .decays = Decays::slopes,
                                                     .betas = Betas::none,
                                                     .skip = true,
                                                     .parts = 3,
                                                     .part = 1},
                                                     {.name = "recur_one_row",
                                                     .S = 1,
                                                     .h = 2,
                                                     .hk = 2,
                                                     .dk = 2,
                                                     .dv = 2,
                                                     .delta = true,
                                                     .decays = Decays::of_heads,
                                                     .betas = Betas::wide}}) {
    cases.push_back({r.name, [r](Dtype X, int64_t B) { return recurrence_case(r, X, B); }});
  }
  const auto convolution = [&](const std::string& name, int64_t S, int64_t C, int64_t K, bool silu, bool bias,
                               bool documents, int64_t parts, int64_t dilation = 1) {
    cases.push_back({name, [=](Dtype X, int64_t B) {
                       return convolution_case(name, X, B, S, C, K, silu, bias, documents, parts, dilation);
                     }});
  };
  convolution("causal_conv", 7, 5, 4, false, false, false, 1);
  convolution("causal_conv_silu_bias", 9, 6, 4, true, true, true, 1);
  convolution("causal_conv_part", 5, 3, 2, true, true, false, 2);
  convolution("causal_conv_one_row", 1, 3, 4, true, false, false, 1);
  convolution("causal_conv_one_tap", 3, 3, 1, false, false, true, 1);
  convolution("causal_conv_dilated", 11, 5, 4, true, false, true, 1, 3);
  convolution("causal_conv_dilated_part", 8, 3, 3, true, true, false, 2, 2);
  convolution("causal_conv_dilated_beyond", 4, 3, 3, false, false, false, 1, 5);
  for (const bool step : {false, true}) {
    const std::string name = step ? "log_decay_step" : "log_decay";
    cases.push_back({name, [=](Dtype X, int64_t B) { return log_decay_case(name, X, B * 7, 3, 1, true, step); }});
  }
  cases.push_back({"log_decay_channels", [](Dtype X, int64_t B) {
                     return log_decay_case("log_decay_channels", X, B * 5, 2, 5, false, false);
                   }});
  cases.push_back({"log_decay_bounded", [](Dtype X, int64_t B) {
                     return bounded_decay_case("log_decay_bounded", X, B * 6, 2, 4, true);
                   }});
  for (const bool first : {false, true}) {
    const std::string name = first ? "gated_norm_after_gate" : "gated_norm";
    cases.push_back({name, [=](Dtype X, int64_t B) {
                       return gated_norm_case(name, X, B * 5, first ? 12 : 18, first ? 12 : 6, 6, first, false);
                     }});
  }
  cases.push_back({"gated_norm_sigmoid", [](Dtype X, int64_t B) {
                     return gated_norm_case("gated_norm_sigmoid", X, B * 3, 7, 7, 7, false, true);
                   }});
  return cases;
}

/// A recurrence or convolution whose sequences of S rows come in P pieces each: operands of the pieces' ops.
struct Pieces {
  Pieces(const OpCase& whole, int64_t P) : whole(whole), P(P), S(whole.attributes.integer("sequence") / P) {
    attributes = whole.attributes;
    attributes.set("sequence", S);
    if (whole.in.back().role == Role::input && whole.in.back().tensor.present) {
      starts = whole.in.back().tensor;
      for (size_t t = 0; t < starts.values.size(); ++t)
        starts.values[t] -= static_cast<double>(static_cast<int64_t>(t) / S % P * S);
    }
  }
  OpResult run(const char* kind, std::vector<Tensor> in, const std::vector<kernels::KernelEntry>& kernels,
               const ir::Attributes& more = {}) const {
    OpCase op{kind, kind, {}, attributes, {}};
    for (const auto& [name, item] : more.items()) op.attributes.set(name, item);
    for (Tensor& t : in) op.in.push_back({std::move(t), Role::metadata});
    while (!op.in.back().tensor.present) op.in.pop_back();
    const bool there = std::any_of(kernels.begin(), kernels.end(),
                                   [&](const kernels::KernelEntry& each) { return each.op_kind == op.kind; });
    return run_op(op, there ? kernels : kernels::reference_kernels());
  }
  Tensor in(size_t i) const { return i < whole.in.size() ? whole.in[i].tensor : Tensor(); }
  const OpCase& whole;
  int64_t P, S;
  ir::Attributes attributes;
  Tensor starts;
};

/// Handed from piece to piece, states give what whole sequences give, and so do their gradients.
inline void expect_states_like_whole(const Recurrence& r, Dtype X, int64_t P,
                                     const std::vector<kernels::KernelEntry>& kernels, double tolerance) {
  const OpCase whole = recurrence_case(r, X, 2);
  const GradientResult expected = run_with_gradient(whole, kernels::reference_kernels());
  const Pieces of(whole, P);
  const Tensor q = of.in(0), k = of.in(1), v = of.in(2), decay = of.in(3), beta = of.in(4), skip = of.in(5);
  const Tensor &d_o = expected.seeds[0], &starts = of.starts;
  const std::string where = fmt::format("{} in {} pieces, {}", r.name, P, name_of(X));
  const ir::Attributes scan{{"heads", r.h}, {"pieces", P}, {"head_dim", r.dk}, {"value_dim", r.dv}};
  ir::Attributes back = scan;
  back.set("reverse", int64_t{1});
  const auto summary = of.run("recur_summary", {k, v, decay, beta, starts}, kernels).out;
  const Tensor states = of.run("scan_states", {summary[0], summary[1]}, kernels, scan).out[0];
  const Tensor o = of.run("recur", {q, k, v, decay, beta, skip, starts, states}, kernels).out[0];
  EXPECT_TRUE(close(expected.out[0], o, tolerance)) << where;
  const Tensor own = of.run("recur_states_dgrad", {d_o, q, k, decay, beta, starts}, kernels).out[0];
  const Tensor behind = of.run("scan_states", {summary[0], own}, kernels, back).out[0];
  const auto d = of.run("recur_dgrad", {d_o, q, k, v, decay, beta, skip, starts, states, behind}, kernels).out;
  size_t next = 0;
  for (size_t i = 0; i < 6; ++i) {
    if (!of.in(i).present) continue;
    EXPECT_TRUE(close(expected.d_in[i], d[next++], tolerance)) << where << ", gradient " << i;
  }
}

/// `most` rows a sequence: an emulator takes its time.
inline void expect_states_like_whole(Dtype X, const std::vector<kernels::KernelEntry>& kernels,
                                     int64_t most = 500) {
  for (Recurrence r : std::vector<Recurrence>{
           {"gated delta", 12, 4, 2, 5, 3, true, Decays::of_heads, Betas::sigmoid, true},
           {"delta of channels", 12, 2, 2, 4, 3, true, Decays::of_channels, Betas::narrow},
           {"long delta", 420, 2, 1, 17, 20, true, Decays::of_heads, Betas::sigmoid, true},
           {"twice beta", 150, 2, 2, 17, 20, true, Decays::of_heads, Betas::twice_sigmoid, true},
           {"long delta of channels", 420, 2, 2, 16, 9, true, Decays::of_channels, Betas::sigmoid, true},
           {"channels", 24, 2, 1, 4, 3, false, Decays::of_channels, Betas::wide},
           {"state space", 216, 6, 2, 3, 4, false, Decays::of_heads, Betas::wide, false, false, true},
           {"slopes", 150, 3, 3, 3, 2, false, Decays::slopes, Betas::none}}) {
    for (const bool documents : {false, true}) {
      if (r.S > most) continue;
      r.documents = documents;
      for (const int64_t P : {1, 2, 6}) {
        const double tolerance = X == Dtype::f64 ? 1e-12 : X == Dtype::f32 ? 4e-5 : 0x1p-6;
        expect_states_like_whole(r, X, P, kernels, tolerance);
      }
    }
  }
}

/// The rows before each piece, as rows_before makes them on the rank whose pieces are all.
inline Tensor rows_ahead(const Tensor& x, int64_t S, int64_t P, int64_t taps) {
  const int64_t pieces = x.shape[0] / S, C = x.shape[1];
  Tensor before(x.dtype, {pieces * taps, C});
  for (int64_t n = 0; n < pieces; ++n) {
    for (int64_t j = 0; j < taps; ++j) {
      const int64_t row = n % P * S - taps + j;
      for (int64_t c = 0; c < C && row >= 0; ++c)
        before.values[(n * taps + j) * C + c] = x.values[((n / P * P) * S + row) * C + c];
    }
  }
  return before;
}

inline void expect_convolution_like_whole(Dtype X, const std::vector<kernels::KernelEntry>& kernels) {
  for (const auto& [S, K, D] :
       std::vector<std::array<int64_t, 3>>{{12, 4, 1}, {12, 2, 1}, {4, 4, 1}, {140, 3, 1}, {12, 3, 2}, {4, 4, 3}}) {
    const int64_t taps = (K - 1) * D;
    for (const bool documents : {false, true}) {
      const OpCase whole = convolution_case("convolution", X, 3, S, 150, K, true, true, documents, 1, D);
      const GradientResult expected = run_with_gradient(whole, kernels::reference_kernels());
      const Pieces of(whole, 2);
      const Tensor before = rows_ahead(of.in(0), of.S, 2, taps);
      const double tolerance = X == Dtype::f64 ? 1e-13 : X == Dtype::f32 ? 2e-6 : 0x1p-7;
      const std::string where = fmt::format("{} of {} rows by {}, {} apart, {}", name_of(X), S, K, D, documents);
      const Tensor ends = of.run("piece_ends", {of.in(0)}, kernels, {{"count", std::min(taps, of.S)}}).out[0];
      const ir::Attributes exchange{{"ranks", int64_t{1}}, {"rows", std::min(taps, of.S)}, {"count", taps}};
      EXPECT_TRUE(same(before, of.run("rows_before", {ends}, kernels, exchange).out[0])) << where;
      const std::vector<Tensor> in{of.in(0), of.in(1), of.in(2), of.starts, before};
      EXPECT_TRUE(close(expected.out[0], of.run("causal_conv", in, kernels).out[0], tolerance)) << where;
      std::vector<Tensor> back{expected.seeds[0]};
      back.insert(back.end(), in.begin(), in.end());
      const Tensor own = of.run("causal_conv_before_dgrad", back, kernels).out[0];
      ir::Attributes reverse = exchange;
      back.push_back(of.run("rows_before", {own}, kernels, reverse.set("reverse", int64_t{1})).out[0]);
      const auto d = of.run("causal_conv_dgrad", back, kernels).out;
      for (size_t i = 0; i < 3; ++i)
        EXPECT_TRUE(close(expected.d_in[i], d[i], tolerance)) << where << ", gradient " << i;
    }
  }
}

}  // namespace heddle::op_runner
