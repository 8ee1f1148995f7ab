// The ops of one layer of DeepSeek-V2-Lite, of its head, and of its update.
#include <algorithm>

#include "bench/gpu_ops/op_bench.h"

namespace heddle::bench {

std::vector<OpToTime> v2_lite_ops(const V2LiteSizes& sizes) {
  const auto& [T, H, F, h, E, k, V, updated] = sizes;
  const int64_t S = std::min<int64_t>(T, 4096);
  constexpr Dtype X = Dtype::bf16, A = Dtype::f32, I = Dtype::i32, D = Dtype::f64;
  constexpr ir::Phase input = ir::Phase::I, weights = ir::Phase::W;
  // Each token's experts, as even as can be, and the rows that they give.
  std::vector<int32_t> experts, row_of(static_cast<size_t>(T * k)), token_of(static_cast<size_t>(T * k)),
      offsets{0}, labels;
  for (int64_t t = 0; t < T; ++t) {
    for (int64_t j = 0; j < k; ++j) experts.push_back(static_cast<int32_t>((t * 7 + j * (E / k)) % E));
    std::sort(experts.end() - k, experts.end());
    labels.push_back(static_cast<int32_t>(t * 7919 % V));
  }
  int32_t next = 0;
  for (int32_t e = 0; e < E; ++e) {
    for (size_t i = 0; i < experts.size(); ++i) {
      if (experts[i] != e) continue;
      row_of[i] = next;
      token_of[static_cast<size_t>(next++)] = static_cast<int32_t>(static_cast<int64_t>(i) / k);
    }
    offsets.push_back(next);
  }
  const OpOperand absent, x{X, {T, H}}, gain{A, {H}}, rows{X, {T * k, H}};
  const OpOperand chosen{I, {T, k}, experts}, places{I, {T, k}, row_of}, token{I, {T * k}, token_of};
  const OpOperand cuts{I, {E + 1}, offsets}, gates{A, {T, k}}, scores{A, {T, E}}, ids{I, {T}, labels};
  const OpOperand q{X, {T, h * 192}}, value{X, {T, h * 128}}, table{A, {S, 64}}, scales{A, {2}};
  const OpOperand head{X, {V, H}}, state{A, {updated}};
  const ir::Attributes epsilon{{"epsilon", 1e-6}}, loss{{"scale_index", 1}};
  const ir::Attributes mla{{"heads", h},       {"nope", 128},   {"rope", 64},
                           {"value_dim", 128}, {"sequence", S}, {"interleaved", 1}};
  const ir::Attributes attention{{"heads", h},    {"kv_heads", h}, {"head_dim", 192}, {"value_dim", 128},
                                 {"sequence", S}, {"causal", 1},   {"scale", 0.07}};
  const ir::Attributes route{{"function", "softmax"}, {"top_k", k},     {"groups", 1}, {"top_groups", 1},
                             {"group_score_top", 1},  {"normalize", 0}, {"scale", 1.0}};
  const ir::Attributes balance{{"top_k", k}, {"sequence", S}, {"alpha", 1e-3}};
  ir::Attributes balance_back = balance;
  balance_back.set("scale_index", int64_t{1});
  return {
      {"rms_norm", "rms_norm", {x, gain}, epsilon},
      {"add_rms_norm", "add_rms_norm", {x, x, gain}, epsilon},
      {"rms_norm_dgrad", "rms_norm_dgrad", {x, x, gain, {A, {T}}, x}, {}, {}, input},
      {"swiglu", "swiglu", {{X, {T * k, 2 * F}}, absent}},
      {"swiglu_dgrad", "swiglu_dgrad", {{X, {T * k, F}}, {X, {T * k, 2 * F}}, absent}, {}, {}, input},
      {"mla_rope", "mla_rope", {q, {X, {T, h * 256}}, {X, {T, 64}}, table}, mla},
      {"mla_rope_dgrad", "mla_rope_dgrad", {q, q, value, table}, mla, {}, input},
      {"router", "router", {scores, absent}, route},
      {"sequence_aux_loss", "sequence_aux_loss", {scores, scales}, balance},
      {"sequence_aux_loss_dgrad", "sequence_aux_loss_dgrad", {scores, scales}, balance_back, {}, input},
      {"permute", "permute", {x, places, token, chosen}},
      {"permute_dgrad", "permute_dgrad", {rows, places, chosen}, {}, {}, input},
      {"unpermute", "unpermute", {rows, gates, places, chosen, x}},
      {"unpermute_dgrad", "unpermute_dgrad", {x, rows, gates, places}, {}, {}, input},
      {"embedding", "embedding", {ids, head}},
      {"embedding_wgrad", "embedding_wgrad", {x, ids}, {}, {{A, {V, H}}}, weights},
      {"linear", "linear", {x, {X, {4 * H, H}}, absent}, {{"wide", 0}}},
      {"linear_dgrad", "linear_dgrad", {{X, {T, 4 * H}}, {X, {4 * H, H}}}, {{"dtype", "bf16"}}, {}, input},
      {"linear_wgrad", "linear_wgrad", {x, {X, {T, 4 * H}}}, {}, {{A, {4 * H, H}}}, weights},
      {"grouped_linear", "grouped_linear", {rows, {X, {E, 2 * F, H}}, cuts}},
      {"grouped_linear_dgrad",
       "grouped_linear_dgrad",
       {{X, {T * k, 2 * F}}, {X, {E, 2 * F, H}}, cuts},
       {},
       {},
       input},
      {"grouped_linear_wgrad",
       "grouped_linear_wgrad",
       {rows, {X, {T * k, 2 * F}}, cuts},
       {},
       {{A, {E, 2 * F, H}}},
       weights},
      {"attention", "attention", {q, q, value}, attention},
      {"attention_dgrad", "attention_dgrad", {value, q, q, value, value, {A, {T, h}}}, attention, {}, input},
      {"head and loss", "linear_cross_entropy_train", {x, head, ids, scales, absent}, loss, {{A, {V, H}}}, input},
      {"adamw",
       "adamw",
       {{D, {1}}, {D, {3}}, state},
       {{"beta1", 0.9}, {"beta2", 0.95}, {"epsilon", 1e-8}, {"decay", 0.1}, {"copy", 1}},
       {state, state, state, {X, {updated}}},
       ir::Phase::end},
  };
}

}  // namespace heddle::bench
