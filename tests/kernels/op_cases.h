// Cases of every differentiable op: odd shapes, absent operands, ties, empty experts, masked labels. Operands are
// the same numbers in every compute type X, so that types and backends can be compared on them.
//
// T = B·(rows a sequence) tokens, H hidden, V vocabulary, K in, N out, E experts, k experts a token, R = T·k.
#pragma once

#include "tests/kernels/op_case.h"

namespace heddle::op_runner {

inline Tensor random_labels(int64_t T, int64_t V, uint64_t seed, bool all_masked = false) {
  Tensor labels(Dtype::i32, {T}, -1);
  for (size_t t = 0; t < labels.values.size(); ++t) {
    const uint64_t bits = RandomKey(seed).bits(t);
    if (!all_masked && bits % 4 != 0) labels.values[t] = static_cast<double>(bits / 4 % static_cast<uint64_t>(V));
  }
  return labels;
}

/// Cosines and sines of angles that no two positions share, A[S, r].
inline Tensor rotation_table(Dtype A, int64_t S, int64_t r) {
  Tensor table(A, {S, r});
  for (int64_t s = 0; s < S; ++s) {
    for (int64_t i = 0; i < r / 2; ++i) {
      const double angle =
          0.1 + static_cast<double>(s) * std::pow(10.0, -2.0 * static_cast<double>(i) / static_cast<double>(r));
      table.values[static_cast<size_t>(s * r + i)] = std::cos(angle);
      table.values[static_cast<size_t>(s * r + r / 2 + i)] = std::sin(angle);
    }
  }
  return table;
}

inline std::vector<CaseMaker> linear_cases() {
  std::vector<CaseMaker> cases;
  const auto linear = [&](std::string name, int64_t rows, int64_t K, int64_t N, bool bias, int64_t wide_output,
                          bool wide_weight = false) {
    cases.push_back({name, [=](Dtype X, int64_t B) {
                       const int64_t T = B * rows;
                       OpCase op{name,
                                 "linear",
                                 {activation(random_tensor(X, {T, K}, 1)),
                                  weight(random_tensor(wide_weight ? wide(X) : X, {N, K}, 2))},
                                 {{"wide", wide_output}},
                                 {}};
                       op.in.push_back(bias ? weight(random_tensor(wide(X), {N}, 3)) : absent());
                       return op;
                     }});
  };
  cases.push_back({"add_bias", [](Dtype X, int64_t B) {
                     return OpCase{
                         "add_bias",
                         "add_bias",
                         {activation(random_tensor(X, {B * 37, 19}, 1)), weight(random_tensor(wide(X), {19}, 2))},
                         {},
                         {}};
                   }});
  linear("linear_1x1x1", 1, 1, 1, false, 0);
  linear("linear_bias", 7, 17, 3, true, 0);
  linear("linear_strips", 9, 40, 33, false, 0);
  linear("linear_wide_bias", 3, 5, 18, true, 1);
  linear("linear_router", 5, 19, 8, false, 1, true);

  const auto grouped = [&](std::string name, int64_t k, int64_t E, int64_t K, int64_t N, std::vector<int> never) {
    cases.push_back({name, [=](Dtype X, int64_t B) {
                       const Routing routing = random_routing(B * 7, k, E, 5, never);
                       return OpCase{name,
                                     "grouped_linear",
                                     {activation(random_tensor(X, {B * 7 * k, K}, 6)),
                                      weight(random_tensor(X, {E, N, K}, 7)), metadata(routing.offsets)},
                                     {},
                                     {}};
                     }});
  };
  grouped("grouped_linear", 2, 5, 7, 3, {});
  grouped("grouped_linear_empty_experts", 2, 6, 17, 18, {0, 3, 5});
  grouped("grouped_linear_one_takes_all", 1, 4, 3, 5, {0, 1, 3});
  grouped("grouped_linear_one_expert", 1, 1, 3, 1, {});

  // Biases of experts, of which some have no rows.
  for (const auto& [name, N] : {std::pair("add_expert_bias", 19), std::pair("add_expert_bias_blocks", 1029)}) {
    cases.push_back({name, [name, N](Dtype X, int64_t B) {
                       const Routing routing = random_routing(B * 7, 2, 6, 5, {0, 3});
                       return OpCase{name,
                                     "add_expert_bias",
                                     {activation(random_tensor(X, {B * 14, N}, 6)),
                                      weight(random_tensor(wide(X), {6, N}, 7)), metadata(routing.offsets)},
                                     {},
                                     {}};
                     }});
  }
  // The last groups of rows are those of copies of other ranks' experts.
  cases.push_back({"add_expert_bias_copies", [](Dtype X, int64_t B) {
                     const Routing routing = random_routing(B * 7, 2, 6, 5, {0, 4});
                     return OpCase{
                         "add_expert_bias_copies",
                         "add_expert_bias",
                         {activation(random_tensor(X, {B * 14, 19}, 6)), weight(random_tensor(wide(X), {4, 19}, 7)),
                          metadata(routing.offsets), activation(random_tensor(wide(X), {2, 19}, 8))},
                         {},
                         {}};
                   }});
  for (const auto& [name, H] : {std::pair("gated_bias", 19), std::pair("gated_bias_blocks", 1029)}) {
    cases.push_back({name, [name, H](Dtype X, int64_t B) {
                       const Routing routing = random_routing(B * 7, 3, 6, 5, {2});
                       return OpCase{name,
                                     "gated_bias",
                                     {activation(random_tensor(wide(X), {B * 7, 3}, 6)), metadata(routing.experts),
                                      weight(random_tensor(wide(X), {6, H}, 7))},
                                     {{"dtype", std::string(heddle::name_of(X))}},
                                     {}};
                     }});
  }

  cases.push_back(
      {"scale_by_row", [](Dtype X, int64_t B) {
         return OpCase{"scale_by_row",
                       "scale_by",
                       {activation(random_tensor(X, {B * 7, 19}, 6)), metadata(random_tensor(wide(X), {B * 7}, 7))},
                       {},
                       {}};
       }});

  for (const bool chosen : {true, false}) {
    const std::string name = chosen ? "scale_by_index" : "scale_by_one";
    cases.push_back(
        {name, [=](Dtype X, int64_t B) {
           const Routing routing = random_routing(B * 7, 3, 6, 5, {2});
           const Tensor factors = random_tensor(wide(X), {chosen ? 6 : 1}, 7);
           if (!chosen)
             return OpCase{
                 name, "scale_by", {activation(random_tensor(X, {B * 7, 19}, 6)), metadata(factors)}, {}, {}};
           return OpCase{
               name,
               "scale_by",
               {activation(random_tensor(wide(X), {B * 7, 3}, 6)), weight(factors), metadata(routing.experts)},
               {},
               {}};
         }});
  }

  cases.push_back({"embedding_each", [](Dtype X, int64_t B) {
                     return OpCase{
                         "embedding_each",
                         "embedding",
                         {Operand{random_labels(B * 12, 6, 8), Role::input}, weight(random_tensor(X, {6, 5}, 9))},
                         {{"each", int64_t{3}}},
                         {}};
                   }});
  cases.push_back({"embedding", [](Dtype X, int64_t B) {
                     return OpCase{
                         "embedding",
                         "embedding",
                         {Operand{random_labels(B * 9, 6, 8), Role::input}, weight(random_tensor(X, {6, 5}, 9))},
                         {},
                         {}};
                   }});
  return cases;
}

inline std::vector<CaseMaker> norm_and_shape_cases() {
  std::vector<CaseMaker> cases;
  for (const int64_t H : {1, 7, 64}) {
    const std::string name = fmt::format("rms_norm_{}", H);
    cases.push_back({name, [=](Dtype X, int64_t B) {
                       return OpCase{
                           name,
                           "rms_norm",
                           {activation(random_tensor(X, {B * 5, H}, 11)), weight(random_tensor(wide(X), {H}, 12))},
                           {{"epsilon", 1e-2}},
                           {}};
                     }});
  }
  cases.push_back(
      {"rms_norm_of_heads", [](Dtype X, int64_t B) {
         return OpCase{"rms_norm_of_heads",
                       "rms_norm",
                       {activation(random_tensor(X, {B * 5, 3 * 6}, 11)), weight(random_tensor(wide(X), {6}, 12))},
                       {{"epsilon", 1e-2}},
                       {}};
       }});
  cases.push_back({"rms_norm_offset", [](Dtype X, int64_t B) {
                     return OpCase{
                         "rms_norm_offset",
                         "rms_norm",
                         {activation(random_tensor(X, {B * 5, 19}, 11)), weight(random_tensor(wide(X), {19}, 12))},
                         {{"epsilon", 1e-2}, {"offset", 1.0}},
                         {}};
                   }});
  cases.push_back({"add_rms_norm_offset", [](Dtype X, int64_t B) {
                     return OpCase{
                         "add_rms_norm_offset",
                         "add_rms_norm",
                         {activation(random_tensor(X, {B * 3, 17}, 13)),
                          activation(random_tensor(X, {B * 3, 17}, 14)), weight(random_tensor(wide(X), {17}, 15))},
                         {{"epsilon", 1e-6}, {"offset", 1.0}},
                         {}};
                   }});
  cases.push_back({"add_rms_norm", [](Dtype X, int64_t B) {
                     return OpCase{
                         "add_rms_norm",
                         "add_rms_norm",
                         {activation(random_tensor(X, {B * 3, 17}, 13)),
                          activation(random_tensor(X, {B * 3, 17}, 14)), weight(random_tensor(wide(X), {17}, 15))},
                         {{"epsilon", 1e-6}},
                         {}};
                   }});
  for (const int64_t H : {1, 7, 64}) {
    const std::string name = fmt::format("layer_norm_{}", H);
    cases.push_back({name, [=](Dtype X, int64_t B) {
                       return OpCase{
                           name,
                           "layer_norm",
                           {activation(random_tensor(X, {B * 5, H}, 11)), weight(random_tensor(wide(X), {H}, 12)),
                            weight(random_tensor(wide(X), {H}, 13))},
                           {{"epsilon", 1e-2}},
                           {}};
                     }});
  }
  cases.push_back({"add_layer_norm", [](Dtype X, int64_t B) {
                     return OpCase{
                         "add_layer_norm",
                         "add_layer_norm",
                         {activation(random_tensor(X, {B * 3, 17}, 13)),
                          activation(random_tensor(X, {B * 3, 17}, 14)), weight(random_tensor(wide(X), {17}, 15)),
                          weight(random_tensor(wide(X), {17}, 16))},
                         {{"epsilon", 1e-6}},
                         {}};
                   }});
  const auto drawn = [](int64_t T) {
    Tensor tokens(Dtype::i32, {T}), key(Dtype::i32, {3}, std::vector<double>{7, -3, 5});
    for (int64_t t = 0; t < T; ++t) tokens.values[static_cast<size_t>(t)] = static_cast<double>(1000 + 13 * t);
    return std::pair{Operand{std::move(tokens), Role::input}, Operand{std::move(key), Role::input}};
  };
  cases.push_back({"dropout", [=](Dtype X, int64_t B) {
                     const auto [tokens, key] = drawn(B * 3);
                     return OpCase{"dropout",
                                   "dropout",
                                   {activation(random_tensor(X, {B * 3, 19}, 16)), tokens, key},
                                   {{"rate", 0.375}, {"site", 4}},
                                   {}};
                   }});
  for (const bool bias : {false, true}) {
    const std::string name = bias ? "dropout_add_bias" : "dropout_add";
    cases.push_back({name, [=](Dtype X, int64_t B) {
                       const auto [tokens, key] = drawn(B * 3);
                       return OpCase{name,
                                     "dropout_add",
                                     {activation(random_tensor(X, {B * 3, 21}, 16)),
                                      activation(random_tensor(X, {B * 3, 21}, 17)), tokens, key,
                                      bias ? weight(random_tensor(wide(X), {21}, 18)) : absent()},
                                     {{"rate", 0.375}, {"site", 4}},
                                     {}};
                     }});
  }
  cases.push_back(
      {"add", [](Dtype X, int64_t B) {
         return OpCase{"add",
                       "add",
                       {activation(random_tensor(X, {B * 3, 5}, 16)), activation(random_tensor(X, {B * 3, 5}, 17))},
                       {},
                       {}};
       }});
  cases.push_back(
      {"scale", [](Dtype X, int64_t B) {
         return OpCase{"scale", "scale", {activation(random_tensor(X, {B * 3, 5}, 16))}, {{"factor", 0.75}}, {}};
       }});
  cases.push_back(
      {"split", [](Dtype X, int64_t B) {
         return OpCase{"split", "split", {activation(random_tensor(X, {B * 3, 10}, 18))}, {{"first", 3}}, {}};
       }});
  cases.push_back({"split_runs", [](Dtype X, int64_t B) {
                     return OpCase{"split_runs",
                                   "split",
                                   {activation(random_tensor(X, {B * 3, 15}, 18))},
                                   {{"first", 2}, {"runs", 3}},
                                   {}};
                   }});
  cases.push_back(
      {"concat_runs", [](Dtype X, int64_t B) {
         return OpCase{"concat_runs",
                       "concat",
                       {activation(random_tensor(X, {B * 3, 4}, 19)), activation(random_tensor(X, {B * 3, 6}, 20))},
                       {{"first", 2}, {"second", 3}, {"runs", 2}},
                       {}};
       }});
  for (const bool second : {true, false}) {
    const std::string name = second ? "concat" : "concat_first_only";
    cases.push_back(
        {name, [=](Dtype X, int64_t B) {
           OpCase op{
               name, "concat", {activation(random_tensor(X, {B * 3, 3}, 19))}, {{"first", 3}, {"second", 7}}, {}};
           op.in.push_back(second ? activation(random_tensor(X, {B * 3, 7}, 20)) : absent());
           return op;
         }});
  }
  return cases;
}

inline std::vector<CaseMaker> attention_cases() {
  std::vector<CaseMaker> cases;
  for (const int64_t interleaved : {0, 1}) {
    for (const auto& [first, width] : {std::pair{0, 7}, {2, 9}, {0, 16}}) {
      const std::string name = fmt::format("rope_interleaved{}_first{}of{}", interleaved, first, width);
      cases.push_back({name, [=, first = first, width = width](Dtype X, int64_t B) {
                         return OpCase{name,
                                       "rope",
                                       {activation(random_tensor(X, {B * 5, 2 * width}, 21)),
                                        metadata(rotation_table(wide(X), 5, width == 16 ? 8 : 4))},
                                       {{"heads", 2},
                                        {"head_dim", width},
                                        {"rope_dim", width == 16 ? 8 : 4},
                                        {"sequence", 5},
                                        {"interleaved", interleaved},
                                        {"first", first},
                                        {"inverse", 0}},
                                       {}};
                       }});
    }
    for (const int64_t inverse : {0, 1}) {
      const std::string name = fmt::format("rope_interleaved{}_inverse{}", interleaved, inverse);
      cases.push_back({name, [=](Dtype X, int64_t B) {
                         return OpCase{name,
                                       "rope",
                                       {activation(random_tensor(X, {B * 5, 3 * 7}, 21)),
                                        metadata(rotation_table(wide(X), 5, 4))},
                                       {{"heads", 3},
                                        {"head_dim", 7},
                                        {"rope_dim", 4},
                                        {"sequence", 5},
                                        {"interleaved", interleaved},
                                        {"inverse", inverse}},
                                       {}};
                       }});
    }
    const std::string name = fmt::format("mla_rope_interleaved{}", interleaved);
    cases.push_back({name, [=](Dtype X, int64_t B) {
                       return OpCase{
                           name,
                           "mla_rope",
                           {activation(random_tensor(X, {B * 3, 2 * 9}, 22)),
                            activation(random_tensor(X, {B * 3, 2 * 8}, 23)),
                            activation(random_tensor(X, {B * 3, 4}, 24)), metadata(rotation_table(wide(X), 3, 4))},
                           {{"heads", 2},
                            {"nope", 5},
                            {"rope", 4},
                            {"value_dim", 3},
                            {"sequence", 3},
                            {"interleaved", interleaved}},
                           {}};
                     }});
  }
  cases.push_back({"mla_assemble", [](Dtype X, int64_t B) {
                     return OpCase{"mla_assemble",
                                   "mla_assemble",
                                   {activation(random_tensor(X, {B * 3, 3 * 8}, 25)),
                                    activation(random_tensor(X, {B * 3, 4}, 26))},
                                   {{"heads", 3}, {"nope", 5}, {"rope", 4}, {"value_dim", 3}},
                                   {}};
                   }});
  const auto attention = [&](std::string name, int64_t S, int64_t h, int64_t hk, int64_t d, int64_t dv,
                             int64_t causal) {
    cases.push_back({name, [=](Dtype X, int64_t B) {
                       return OpCase{name,
                                     "attention",
                                     {activation(random_tensor(X, {B * S, h * d}, 27)),
                                      activation(random_tensor(X, {B * S, hk * d}, 28)),
                                      activation(random_tensor(X, {B * S, hk * dv}, 29))},
                                     {{"heads", h},
                                      {"kv_heads", hk},
                                      {"head_dim", d},
                                      {"value_dim", dv},
                                      {"sequence", S},
                                      {"causal", causal},
                                      {"scale", 1 / std::sqrt(static_cast<double>(d))}},
                                     {}};
                     }});
  };
  attention("attention_causal", 7, 3, 3, 5, 4, 1);
  attention("attention_full", 7, 3, 3, 5, 4, 0);
  attention("attention_grouped_heads", 17, 4, 2, 8, 8, 1);
  attention("attention_one_position", 1, 2, 1, 3, 3, 1);
  for (const int index : {0, 1, 2}) {  // a third of the queries of each sequence, all keys
    const std::string name = fmt::format("attention_context_rank{}", index);
    cases.push_back({name, [=](Dtype X, int64_t B) {
                       OpCase op{name,
                                 "attention",
                                 {activation(random_tensor(X, {B * 4, 2 * 5}, 27)),
                                  activation(random_tensor(X, {B * 12, 5}, 28)),
                                  activation(random_tensor(X, {B * 12, 4}, 29))},
                                 {{"heads", 2},
                                  {"kv_heads", 1},
                                  {"head_dim", 5},
                                  {"value_dim", 4},
                                  {"sequence", 12},
                                  {"cp", 3},
                                  {"causal", 1},
                                  {"scale", 0.4}},
                                 {}};
                       op.place.index[static_cast<size_t>(ir::Axis::cp)] = index;
                       op.place.degree[static_cast<size_t>(ir::Axis::cp)] = 3;
                       return op;
                     }});
  }
  return cases;
}

/// The first position that each of B sequences of S positions may see, where documents of odd lengths are packed:
/// none the same in two sequences, one of a single token.
inline Tensor document_starts(int64_t B, int64_t S) {
  Tensor starts(Dtype::i32, {B * S});
  for (int64_t b = 0; b < B; ++b) {
    int64_t begin = 0, length = 1 + b % 3;
    for (int64_t i = 0; i < S; ++i) {
      if (i == begin + length) {
        begin = i;
        length = 1 + (3 * length + b) % (S / 2 + 2);
      }
      starts.values[static_cast<size_t>(b * S + i)] = static_cast<double>(begin);
    }
  }
  return starts;
}

inline std::vector<CaseMaker> masked_attention_cases() {
  std::vector<CaseMaker> cases;
  const auto attention = [&](std::string name, int64_t S, int64_t window, bool documents, bool sinks, int cp = 1,
                             int index = 0, double cap = 0) {
    cases.push_back({name, [=](Dtype X, int64_t B) {
                       OpCase op{name,
                                 "attention",
                                 {activation(random_tensor(X, {B * S / cp, 4 * 6}, 27)),
                                  activation(random_tensor(X, {B * S, 2 * 6}, 28)),
                                  activation(random_tensor(X, {B * S, 2 * 5}, 29)),
                                  documents ? Operand{document_starts(B, S), Role::input} : absent(),
                                  sinks ? weight(random_tensor(wide(X), {4}, 30)) : absent()},
                                 {{"heads", 4},
                                  {"kv_heads", 2},
                                  {"head_dim", 6},
                                  {"value_dim", 5},
                                  {"sequence", S},
                                  {"cp", int64_t{cp}},
                                  {"causal", 1},
                                  {"scale", 0.4},
                                  {"window", window}},
                                 {}};
                       if (cap > 0) op.attributes.set("cap", cap);
                       op.place.index[static_cast<size_t>(ir::Axis::cp)] = index;
                       op.place.degree[static_cast<size_t>(ir::Axis::cp)] = cp;
                       return op;
                     }});
  };
  attention("attention_window", 17, 4, false, false);
  attention("attention_window_of_one", 7, 1, false, false);
  attention("attention_documents", 17, 0, true, false);
  attention("attention_sinks", 17, 0, false, true);
  attention("attention_all_masks", 90, 40, true, true);
  for (const int index : {0, 1, 2}) {
    attention(fmt::format("attention_all_masks_rank{}", index), 12, 5, true, true, 3, index);
  }
  attention("attention_cap", 17, 0, false, false, 1, 0, 0.5);
  attention("attention_cap_all_masks", 90, 40, true, true, 1, 0, 2);
  attention("attention_cap_rank", 12, 5, true, true, 3, 1, 0.7);
  cases.push_back({"attention_sinks_by_heads", [](Dtype X, int64_t B) {  // the second half of them is of this rank
                     OpCase op{"attention_sinks_by_heads",
                               "attention",
                               {activation(random_tensor(X, {B * 7, 2 * 6}, 27)),
                                activation(random_tensor(X, {B * 7, 6}, 28)),
                                activation(random_tensor(X, {B * 7, 5}, 29)), absent(),
                                weight(random_tensor(wide(X), {4}, 30))},
                               {{"heads", 2},
                                {"kv_heads", 1},
                                {"head_dim", 6},
                                {"value_dim", 5},
                                {"sequence", 7},
                                {"causal", 1},
                                {"scale", 0.4},
                                {"sink_parts", 2}},
                               {}};
                     op.place.index[static_cast<size_t>(ir::Axis::cp)] = 1;
                     op.place.degree[static_cast<size_t>(ir::Axis::cp)] = 2;
                     return op;
                   }});
  return cases;
}

inline std::vector<CaseMaker> mlp_cases() {
  std::vector<CaseMaker> cases;
  for (const bool bias : {false, true}) {
    for (const std::string form : {"swiglu", "gelu", "gelu_tanh"}) {
      const std::string name = bias ? form + "_bias" : form, kind = form == "swiglu" ? "swiglu" : "gelu";
      cases.push_back({name, [=](Dtype X, int64_t B) {
                         OpCase op{name, kind, {activation(random_tensor(X, {B * 3, 14}, 31))}, {}, {}};
                         if (form == "gelu_tanh") op.attributes.set("tanh", int64_t{1});
                         op.in.push_back(bias ? weight(random_tensor(wide(X), {14}, 32)) : absent());
                         return op;
                       }});
    }
  }
  for (const bool bias : {false, true}) {  // some gates and ups beyond the limit
    const std::string name = bias ? "clamped_swiglu_bias" : "clamped_swiglu";
    cases.push_back({name, [=](Dtype X, int64_t B) {
                       const Routing routing = random_routing(B * 7, 2, 5, 5, {1, 4});
                       OpCase op{name,
                                 "clamped_swiglu",
                                 {activation(random_tensor(X, {B * 14, 46}, 31, 3))},
                                 {{"alpha", 1.702}, {"limit", 1.2347}},
                                 {}};
                       if (bias) {
                         op.in.push_back(weight(random_tensor(wide(X), {5, 46}, 32)));
                         op.in.push_back(metadata(routing.offsets));
                       }
                       return op;
                     }});
  }
  cases.push_back({"clamped_swiglu_copies", [](Dtype X, int64_t B) {
                     const Routing routing = random_routing(B * 7, 2, 5, 5, {1});
                     return OpCase{"clamped_swiglu_copies",
                                   "clamped_swiglu",
                                   {activation(random_tensor(X, {B * 14, 46}, 31, 3)),
                                    weight(random_tensor(wide(X), {3, 46}, 32)), metadata(routing.offsets),
                                    activation(random_tensor(wide(X), {2, 46}, 34))},
                                   {{"alpha", 1.702}, {"limit", 1.2347}},
                                   {}};
                   }});
  cases.push_back({"silu", [](Dtype X, int64_t B) {
                     return OpCase{"silu", "silu", {activation(random_tensor(X, {B * 3, 7}, 33, 3))}, {}, {}};
                   }});
  // A gate an element, one a run shorter and one longer than a warp, and one a row; by a sigmoid and by a softplus.
  for (const int64_t softplus : {0, 1}) {
    for (const auto& [gates, columns] : {std::pair{7, 7}, {3, 15}, {2, 82}, {1, 9}}) {
      const std::string name = fmt::format("{}_gate_{}of{}", softplus ? "softplus" : "sigmoid", gates, columns);
      cases.push_back({name, [=, gates = gates, columns = columns](Dtype X, int64_t B) {
                         return OpCase{name,
                                       "sigmoid_gate",
                                       {activation(random_tensor(X, {B * 3, columns}, 36)),
                                        activation(random_tensor(X, {B * 3, gates}, 37, 3))},
                                       softplus ? ir::Attributes{{"softplus", softplus}} : ir::Attributes{},
                                       {}};
                       }});
    }
  }
  cases.push_back(
      {"soft_cap", [](Dtype X, int64_t B) {
         return OpCase{
             "soft_cap", "soft_cap", {activation(random_tensor(X, {B * 3, 7}, 38, 3))}, {{"cap", 1.5}}, {}};
       }});
  for (const int64_t below : {0, 1}) {
    const std::string name = below == 0 ? "clip_above" : "clip";
    cases.push_back({name, [=](Dtype X, int64_t B) {
                       return OpCase{name,
                                     "clip",
                                     {activation(random_tensor(X, {B * 3, 7}, 39, 3))},
                                     {{"limit", 1.2347}, {"below", below}},
                                     {}};
                     }});
  }
  cases.push_back(
      {"squared_relu", [](Dtype X, int64_t B) {
         return OpCase{"squared_relu", "squared_relu", {activation(random_tensor(X, {B * 3, 7}, 40, 3))}, {}, {}};
       }});
  cases.push_back(
      {"multiply", [](Dtype X, int64_t B) {
         return OpCase{"multiply",
                       "multiply",
                       {activation(random_tensor(X, {B * 3, 7}, 34)), activation(random_tensor(X, {B * 3, 7}, 35))},
                       {},
                       {}};
       }});
  return cases;
}

inline std::vector<CaseMaker> router_cases() {
  std::vector<CaseMaker> cases;
  for (const std::string function : {"sigmoid", "softmax", "root_softplus"}) {
    const std::string name = "router_scores_" + function;
    cases.push_back({name, [=](Dtype X, int64_t B) {
                       return OpCase{name,
                                     "router_scores",
                                     {activation(random_tensor(wide(X), {B * 5, 7}, 41, 2))},
                                     {{"function", function}},
                                     {}};
                     }});
    for (const int64_t normalize : {0, 1}) {
      const std::string fused = fmt::format("router_{}_normalize{}", function, normalize);
      cases.push_back({fused, [=](Dtype X, int64_t B) {
                         OpCase op{fused,
                                   "router",
                                   {activation(random_tensor(wide(X), {B * 5, 12}, 42, 2))},
                                   {{"function", function},
                                    {"top_k", 3},
                                    {"groups", 4},
                                    {"top_groups", 2},
                                    {"group_score_top", 2},
                                    {"normalize", normalize},
                                    {"scale", 2.5}},
                                   {}};
                         op.in.push_back(normalize ? metadata(random_tensor(wide(X), {12}, 43, 0.1)) : absent());
                         return op;
                       }});
    }
  }
  for (const int64_t normalize : {0, 1}) {
    const std::string name = fmt::format("gate_normalize{}", normalize);
    cases.push_back({name, [=](Dtype X, int64_t B) {
                       Tensor s = random_tensor(wide(X), {B * 5, 9}, 44);
                       for (double& v : s.values) v = std::abs(v);
                       return OpCase{name,
                                     "gate",
                                     {activation(s), metadata(random_routing(B * 5, 3, 9, 45).experts)},
                                     {{"normalize", normalize}, {"scale", 2.5}},
                                     {}};
                     }});
  }
  const auto scales = [](Dtype X) {
    return Operand{Tensor(wide(X), {2}, std::vector<double>{1e9, 0.25}), Role::input};
  };
  cases.push_back({"sequence_aux_loss", [=](Dtype X, int64_t B) {
                     Tensor s = random_tensor(wide(X), {B * 5, 8}, 46);
                     for (double& v : s.values) v = std::abs(v) + 0.125;
                     return OpCase{"sequence_aux_loss",
                                   "sequence_aux_loss",
                                   {activation(s), scales(X)},
                                   {{"top_k", 3}, {"sequence", 5}, {"alpha", 0.5}, {"scale_index", 1}},
                                   {}};
                   }});
  cases.push_back({"z_loss", [=](Dtype X, int64_t B) {
                     return OpCase{"z_loss",
                                   "z_loss",
                                   {activation(random_tensor(wide(X), {B * 5, 7}, 47)), scales(X)},
                                   {{"weight", 0.5}, {"scale_index", 1}},
                                   {}};
                   }});
  for (const int64_t E : {2, 9, 40}) {
    const std::string name = fmt::format("mixer_gate_{}", E);
    cases.push_back({name, [=](Dtype X, int64_t B) {
                       const Tensor logits = random_tensor(wide(X), {B * 5, E}, 48, 2);
                       return OpCase{name,
                                     "mixer_gate",
                                     {activation(logits), metadata(two_largest(logits))},
                                     {{"closeness", E == 40 ? 0.7 : 0.3}},
                                     {}};
                     }});
  }
  for (const int64_t H : {19, 1029}) {
    const std::string name = fmt::format("zero_experts_{}", H);
    cases.push_back({name, [=](Dtype X, int64_t B) {
                       return OpCase{name,
                                     "zero_experts",
                                     {activation(random_tensor(X, {B * 7, H}, 49)),
                                      activation(random_tensor(wide(X), {B * 7, 3}, 50)),
                                      metadata(random_routing(B * 7, 3, 6, 51).experts)},
                                     {{"first", int64_t{4}}},
                                     {}};
                     }});
  }
  for (const bool empty_experts : {false, true}) {
    const std::vector<int> never = empty_experts ? std::vector<int>{0, 2, 5} : std::vector<int>{};
    const std::string suffix = empty_experts ? "_empty_experts" : "";
    cases.push_back({"permute" + suffix, [=](Dtype X, int64_t B) {
                       const Routing routing = random_routing(B * 5, 3, 6, 48, never);
                       return OpCase{"permute" + suffix,
                                     "permute",
                                     {activation(random_tensor(X, {B * 5, 7}, 49)), metadata(routing.row_of),
                                      metadata(routing.token_of), metadata(routing.experts)},
                                     {},
                                     {}};
                     }});
    cases.push_back({"unpermute" + suffix, [=](Dtype X, int64_t B) {
                       const Routing routing = random_routing(B * 5, 3, 6, 50, never);
                       OpCase op{"unpermute" + suffix,
                                 "unpermute",
                                 {activation(random_tensor(X, {B * 15, 7}, 51)),
                                  activation(random_tensor(wide(X), {B * 5, 3}, 52)), metadata(routing.row_of),
                                  metadata(routing.experts)},
                                 {},
                                 {}};
                       op.in.push_back(empty_experts ? absent() : activation(random_tensor(X, {B * 5, 7}, 53)));
                       return op;
                     }});
  }
  return cases;
}

inline std::vector<CaseMaker> loss_cases() {
  std::vector<CaseMaker> cases;
  const auto scales = [](Dtype X) {
    return Operand{Tensor(wide(X), {2}, std::vector<double>{1e9, 0.25}), Role::input};
  };
  for (const bool all_masked : {false, true}) {
    const std::string suffix = all_masked ? "_all_masked" : "";
    cases.push_back({"cross_entropy" + suffix, [=](Dtype X, int64_t B) {
                       return OpCase{"cross_entropy" + suffix,
                                     "cross_entropy",
                                     {activation(random_tensor(X, {B * 7, 19}, 61, 2)),
                                      Operand{random_labels(B * 7, 19, 62, all_masked), Role::input}, scales(X)},
                                     {{"scale_index", 1}},
                                     {}};
                     }});
    cases.push_back({"linear_cross_entropy" + suffix, [=](Dtype X, int64_t B) {
                       return OpCase{
                           "linear_cross_entropy" + suffix,
                           "linear_cross_entropy",
                           {activation(random_tensor(X, {B * 35, 5}, 63)), weight(random_tensor(X, {19, 5}, 64)),
                            Operand{random_labels(B * 35, 19, 65, all_masked), Role::input}, scales(X)},
                           {{"scale_index", 1}},
                           {}};
                     }});
  }
  const auto weights = [](int64_t T) {
    Tensor of_rows = random_tensor(Dtype::f64, {T}, 66);
    for (double& w : of_rows.values) w = std::abs(w);
    return Operand{of_rows, Role::input};
  };
  for (const double z_weight : {0.0, 0.03}) {
    ir::Attributes attributes{{"scale_index", 1}};
    if (z_weight > 0) attributes.set("z_weight", z_weight);
    const std::string suffix = z_weight > 0 ? "_weighted_z" : "_weighted";
    cases.push_back({"cross_entropy" + suffix, [=](Dtype X, int64_t B) {
                       return OpCase{
                           "cross_entropy" + suffix,
                           "cross_entropy",
                           {activation(random_tensor(X, {B * 7, 19}, 61, 2)),
                            Operand{random_labels(B * 7, 19, 62), Role::input}, scales(X), weights(B * 7)},
                           attributes,
                           {}};
                     }});
    cases.push_back({"linear_cross_entropy" + suffix, [=](Dtype X, int64_t B) {
                       return OpCase{
                           "linear_cross_entropy" + suffix,
                           "linear_cross_entropy",
                           {activation(random_tensor(X, {B * 35, 5}, 63)), weight(random_tensor(X, {19, 5}, 64)),
                            Operand{random_labels(B * 35, 19, 65), Role::input}, scales(X), weights(B * 35)},
                           attributes,
                           {}};
                     }});
  }
  cases.push_back({"token_losses", [=](Dtype X, int64_t B) {
                     return OpCase{"token_losses",
                                   "token_losses",
                                   {activation(random_tensor(X, {B * 7, 19}, 67, 2)),
                                    Operand{random_labels(B * 7, 19, 68), Role::input}},
                                   {},
                                   {}};
                   }});
  cases.push_back({"linear_token_losses", [=](Dtype X, int64_t B) {
                     return OpCase{
                         "linear_token_losses",
                         "linear_token_losses",
                         {activation(random_tensor(X, {B * 35, 5}, 69)), weight(random_tensor(X, {19, 5}, 70)),
                          Operand{random_labels(B * 35, 19, 71), Role::input}},
                         {},
                         {}};
                   }});
  cases.push_back({"sequence_sums", [=](Dtype, int64_t B) {
                     return OpCase{"sequence_sums",
                                   "sequence_sums",
                                   {activation(random_tensor(Dtype::f64, {B * 3 * 700}, 72))},
                                   {{"sequence", 700}},
                                   {}};
                   }});
  for (const double smoothing : {0.0, 0.2}) {
    const std::string name = smoothing > 0 ? "preference_loss_smoothed" : "preference_loss";
    cases.push_back({name, [=](Dtype X, int64_t B) {
                       Tensor references = random_tensor(Dtype::f64, {B * 6}, 74, 3);
                       // A pair that only fills up the batch.
                       if (B > 0) references.values[2] = references.values[3] = std::nan("");
                       return OpCase{name,
                                     "preference_loss",
                                     {activation(random_tensor(Dtype::f64, {B * 6}, 73, 3)),
                                      Operand{references, Role::input}, scales(X)},
                                     {{"beta", 0.4}, {"smoothing", smoothing}, {"ranks", 2}, {"scale_index", 1}},
                                     {}};
                     }});
  }
  return cases;
}

/// Every case of every differentiable op.
inline std::vector<CaseMaker> differentiable_cases() {
  std::vector<CaseMaker> all;
  for (auto* family : {linear_cases, norm_and_shape_cases, attention_cases, masked_attention_cases, mlp_cases,
                       router_cases, loss_cases}) {
    for (CaseMaker& maker : family()) all.push_back(std::move(maker));
  }
  return all;
}

}  // namespace heddle::op_runner
