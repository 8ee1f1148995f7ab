// Cases of recurrences along the sequence and of what stands around them (ops/recurrence.cpp).
#pragma once

#include "tests/kernels/op_cases.h"

namespace heddle::op_runner {

enum class Decays : uint8_t { none, of_heads, of_channels, slopes };
enum class Betas : uint8_t { none, narrow, wide, sigmoid };

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
    for (double& b : beta.values) b = r.betas == Betas::sigmoid ? b : std::min(1.0, std::abs(b));
    op.in.push_back(activation(beta));
  }
  op.in.push_back(r.skip ? weight(random_tensor(wide(X), {r.h * r.parts}, 86)) : absent());
  op.in.push_back(r.documents ? Operand{document_starts(B, r.S), Role::input} : absent());
  if (r.betas == Betas::sigmoid) op.attributes.set("sigmoid", int64_t{1});
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
                               bool silu, bool bias, bool documents, int64_t parts = 1) {
  OpCase op{name,
            "causal_conv",
            {activation(random_tensor(X, {B * S, C}, 91)), weight(random_tensor(wide(X), {C * parts, K}, 92)),
             bias ? weight(random_tensor(wide(X), {C * parts}, 93)) : absent(),
             documents ? Operand{document_starts(B, S), Role::input} : absent()},
            {{"sequence", S}, {"silu", int64_t{silu}}, {"parts", parts}},
            {}};
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
                               bool documents, int64_t parts) {
    cases.push_back({name, [=](Dtype X, int64_t B) {
                       return convolution_case(name, X, B, S, C, K, silu, bias, documents, parts);
                     }});
  };
  convolution("causal_conv", 7, 5, 4, false, false, false, 1);
  convolution("causal_conv_silu_bias", 9, 6, 4, true, true, true, 1);
  convolution("causal_conv_part", 5, 3, 2, true, true, false, 2);
  convolution("causal_conv_one_row", 1, 3, 4, true, false, false, 1);
  convolution("causal_conv_one_tap", 3, 3, 1, false, false, true, 1);
  for (const bool step : {false, true}) {
    const std::string name = step ? "log_decay_step" : "log_decay";
    cases.push_back({name, [=](Dtype X, int64_t B) { return log_decay_case(name, X, B * 7, 3, 1, true, step); }});
  }
  cases.push_back({"log_decay_channels", [](Dtype X, int64_t B) {
                     return log_decay_case("log_decay_channels", X, B * 5, 2, 5, false, false);
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

}  // namespace heddle::op_runner
