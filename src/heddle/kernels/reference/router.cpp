// The router: scores, choice, gate, their gradients, and the load that balances it without a loss.
// T tokens, E experts, k experts a token, R = T·k rows sorted by (expert, token).
// Source: DeepSeek-V3 report, arXiv 2412.19437, section 2.1.2.
#include <cmath>

#include "heddle/kernels/reference/operands.h"
#include "heddle/kernels/reference/scalars.h"
#include "heddle/kernels/reference/top.h"

namespace heddle::kernels::reference {
namespace {

enum class Function { sigmoid, softmax, root_softplus };

Function function_of(const KernelCall& call) {
  const std::string& word = call.op->attributes.word("function");
  if (word == "sigmoid") return Function::sigmoid;
  if (word == "root_softplus") return Function::root_softplus;
  HEDDLE_CHECK(word == "softmax", "router function '{}' is none of sigmoid, softmax and root_softplus", word);
  return Function::softmax;
}

template <class A>
void scores_row(Function function, const A* logits_E, int64_t E, A* s_E) {
  if (function == Function::sigmoid) {
    for (int64_t e = 0; e < E; ++e) s_E[e] = A(1) / (A(1) + std::exp(-logits_E[e]));
    return;
  }
  if (function == Function::root_softplus) {
    for (int64_t e = 0; e < E; ++e) {
      const A x = logits_E[e];
      s_E[e] = std::sqrt(std::max(x, A(0)) + std::log1p(std::exp(-std::abs(x))));
    }
    return;
  }
  const A most = *std::max_element(logits_E, logits_E + E);
  A sum = 0;
  for (int64_t e = 0; e < E; ++e) sum += s_E[e] = std::exp(logits_E[e] - most);
  for (int64_t e = 0; e < E; ++e) s_E[e] /= sum;
}

/// sigmoid: dlogits = ds·s·(1 − s); softmax: dlogits = s·(ds − Σ_e ds·s); root_softplus: dlogits =
/// ds·(1 − e^−s²) ÷ 2s, for e^s² = 1 + e^logit.
template <class A>
void scores_dgrad_row(Function function, const A* ds_E, const A* s_E, int64_t E, A* dlogits_E) {
  if (function == Function::root_softplus) {
    for (int64_t e = 0; e < E; ++e) {
      const A s = s_E[e];
      dlogits_E[e] = s > 0 ? ds_E[e] * -std::expm1(-s * s) / (A(2) * s) : A(0);
    }
    return;
  }
  A sum = 0;
  for (int64_t e = 0; e < E; ++e) sum += ds_E[e] * s_E[e];
  for (int64_t e = 0; e < E; ++e) {
    dlogits_E[e] = function == Function::sigmoid ? ds_E[e] * s_E[e] * (A(1) - s_E[e]) : s_E[e] * (ds_E[e] - sum);
  }
}

template <class A>
void router_scores(const KernelCall& call) {
  const Input<A> logits_TE(call.in[0]);
  const int64_t T = call.in[0].dim(0), E = call.in[0].dim(1);
  const Output<A> s_TE(call.out[0]);
  for (int64_t t = 0; t < T; ++t) scores_row(function_of(call), logits_TE.at(t * E), E, s_TE.at(t * E));
}

template <class A>
void router_scores_dgrad(const KernelCall& call) {
  const Input<A> ds_TE(call.in[0]), s_TE(call.in[1]);
  const int64_t T = call.in[0].dim(0), E = call.in[0].dim(1);
  const Output<A> dlogits_TE(call.out[0]);
  for (int64_t t = 0; t < T; ++t) {
    scores_dgrad_row(function_of(call), ds_TE.at(t * E), s_TE.at(t * E), E, dlogits_TE.at(t * E));
  }
}

/// The experts of one token, in increasing id.
template <class A>
void choose_row(const ir::Attributes& at, const std::vector<A>& biased_E, int32_t* experts_k) {
  const auto E = std::ssize(biased_E);
  const int64_t k = at.integer("top_k"), groups = at.integer("groups");
  const int64_t size = E / groups;
  std::vector<A> group_scores(static_cast<size_t>(groups));
  for (int64_t g = 0; g < groups; ++g) {
    const int64_t best = std::min(at.integer("group_score_top"), size);
    const std::span<const A> group(biased_E.data() + g * size, static_cast<size_t>(size));
    A sum = 0;
    for (const int64_t e : top_in_order<A>(group, best)) sum += group[e];
    group_scores[g] = sum;
  }
  std::vector<bool> open(static_cast<size_t>(E), false);
  for (const int64_t g : top_in_order<A>(group_scores, at.integer("top_groups"))) {
    std::fill_n(open.begin() + g * size, size, true);
  }
  std::vector<int64_t> chosen = top_in_order<A>(biased_E, k, &open);
  std::sort(chosen.begin(), chosen.end());
  std::copy(chosen.begin(), chosen.end(), experts_k);
}

/// The rows of (token, slot) pairs sorted by (expert, token): a counting sort.
void sort_rows(const int32_t* experts_Tk, int64_t T, int64_t k, int64_t E, int32_t* row_of_Tk, int32_t* token_of_R,
               int32_t* offsets) {
  std::fill_n(offsets, E + 1, 0);
  for (int64_t i = 0; i < T * k; ++i) ++offsets[experts_Tk[i] + 1];
  for (int64_t e = 0; e < E; ++e) offsets[e + 1] += offsets[e];
  std::vector<int32_t> next(offsets, offsets + E);
  for (int64_t i = 0; i < T * k; ++i) {
    const int32_t row = next[experts_Tk[i]]++;
    row_of_Tk[i] = row;
    token_of_R[row] = static_cast<int32_t>(i / k);
  }
}

/// out: experts, row_of, token_of, offsets.
template <class A>
void choose_rows(const KernelCall& call, const A* s_TE, int64_t T, int64_t E, const TensorView& bias,
                 std::span<const TensorView> out) {
  const ir::Attributes& at = call.op->attributes;
  const int64_t k = at.integer("top_k");
  const Input<A> bias_E(bias);
  auto* experts_Tk = out[0].as<int32_t>();
  std::vector<A> biased_E(static_cast<size_t>(E));
  for (int64_t t = 0; t < T; ++t) {
    for (int64_t e = 0; e < E; ++e) {
      biased_E[e] = bias_E ? s_TE[t * E + e] + bias_E[e] : s_TE[t * E + e];
    }
    choose_row(at, biased_E, experts_Tk + t * k);
  }
  sort_rows(experts_Tk, T, k, E, out[1].as<int32_t>(), out[2].as<int32_t>(), out[3].as<int32_t>());
}

template <class A>
void choose(const KernelCall& call) {
  const Input<A> s_TE(call.in[0]);
  choose_rows(call, s_TE.at(0), call.in[0].dim(0), call.in[0].dim(1), operand(call.in, 1), call.out);
}

/// The experts of each id's row, in increasing id of expert.
template <class A>
void choose_by_id(const KernelCall& call) {
  const auto* ids_T = call.in[0].as<const int32_t>();
  const Input<A> table_Vk(call.in[1]);
  const int64_t T = call.in[0].elements(), V = call.in[1].dim(0), k = call.in[1].dim(1);
  const int64_t E = call.op->attributes.integer("experts");
  auto* experts_Tk = call.out[0].as<int32_t>();
  for (int64_t t = 0; t < T; ++t) {
    const int64_t id = std::max(ids_T[t], 0);
    HEDDLE_CHECK(id < V, "token id {} in a table of {}", id, V);
    for (int64_t j = 0; j < k; ++j) {
      const A expert = table_Vk[id * k + j];
      HEDDLE_CHECK(expert >= 0 && expert < static_cast<A>(E), "expert {} of {} for token id {}", expert, E, id);
      experts_Tk[t * k + j] = static_cast<int32_t>(expert);
    }
    std::sort(experts_Tk + t * k, experts_Tk + (t + 1) * k);
  }
  sort_rows(experts_Tk, T, k, E, call.out[1].as<int32_t>(), call.out[2].as<int32_t>(), call.out[3].as<int32_t>());
}

/// g_j = s of expert j [÷ (Σ_j s + 1e-20)]·scale; the sum in increasing j.
template <class A>
void gate_rows(const KernelCall& call, const A* s_TE, const int32_t* experts_Tk, int64_t T, int64_t E, int64_t k,
               const Output<A>& g_Tk) {
  const bool normalize = call.op->attributes.integer("normalize") != 0;
  const A scale = static_cast<A>(call.op->attributes.number("scale"));
  for (int64_t t = 0; t < T; ++t) {
    A sum = 0;
    for (int64_t j = 0; j < k; ++j) sum += s_TE[t * E + experts_Tk[t * k + j]];
    sum += static_cast<A>(kLeastSum);
    for (int64_t j = 0; j < k; ++j) {
      const A s = s_TE[t * E + experts_Tk[t * k + j]];
      g_Tk[t * k + j] = (normalize ? s / sum : s) * scale;
    }
  }
}

template <class A>
void gate(const KernelCall& call) {
  const Input<A> s_TE(call.in[0]);
  const Output<A> g_Tk(call.out[0]);
  gate_rows(call, s_TE.at(0), call.in[1].as<const int32_t>(), call.in[0].dim(0), call.in[0].dim(1),
            call.in[1].dim(1), g_Tk);
}

/// One token. ds of expert j += scale·dg_j, or scale·(dg_j − Σ_i dg_i s_i ÷ Z) ÷ Z when normalized, Z = Σ_j s +
/// 1e-20.
template <class A>
void gate_dgrad_row(const KernelCall& call, const A* dg_k, const A* s_E, const int32_t* experts_k, int64_t k,
                    A* ds_E) {
  const bool normalize = call.op->attributes.integer("normalize") != 0;
  const A scale = static_cast<A>(call.op->attributes.number("scale"));
  A sum = 0, dot = 0;
  for (int64_t j = 0; j < k; ++j) sum += s_E[experts_k[j]];
  sum += static_cast<A>(kLeastSum);
  for (int64_t j = 0; j < k; ++j) dot += dg_k[j] * s_E[experts_k[j]];
  for (int64_t j = 0; j < k; ++j) ds_E[experts_k[j]] += scale * (normalize ? (dg_k[j] - dot / sum) / sum : dg_k[j]);
}

template <class A>
void gate_dgrad(const KernelCall& call) {
  const Input<A> dg_Tk(call.in[0]), s_TE(call.in[1]);
  const auto* experts_Tk = call.in[2].as<const int32_t>();
  const int64_t T = call.in[1].dim(0), E = call.in[1].dim(1), k = call.in[2].dim(1);
  const Output<A> ds_TE(call.out[0]);
  ds_TE.fill(A(0));
  for (int64_t t = 0; t < T; ++t) {
    gate_dgrad_row(call, dg_Tk.at(t * k), s_TE.at(t * E), experts_Tk + t * k, k, ds_TE.at(t * E));
  }
}

template <class A>
void unit_gates(const KernelCall& call) {
  Output<A>(call.out[0]).fill(A(1));
}

/// The two experts of a token, that of the larger logit first; of equal ones the lower.
template <class A>
std::pair<int32_t, int32_t> mixed_in_order(const A* logits_E, const int32_t* experts) {
  const int32_t low = std::min(experts[0], experts[1]), high = std::max(experts[0], experts[1]);
  return logits_E[high] > logits_E[low] ? std::pair{high, low} : std::pair{low, high};
}

/// p_e of the softmax over experts close to `chosen`, which has the largest logit l of all but `without`:
/// (l − l_e) ÷ max(|l_e|, l) ≤ closeness. 0 of all others.
template <class A>
std::vector<A> softmax_of_close(const A* logits_E, int64_t E, int32_t chosen, int32_t without, A closeness) {
  std::vector<A> p_E(static_cast<size_t>(E), A(0));
  const A most = logits_E[chosen];
  A sum = 0;
  for (int64_t e = 0; e < E; ++e) {
    const A factor = std::max(std::abs(logits_E[e]), most);
    if (e == without || (most - logits_E[e]) / factor > closeness) continue;
    sum += p_E[e] = std::exp(logits_E[e] - most);
  }
  for (A& p : p_E) p /= sum;
  return p_E;
}

template <class A>
void mixer_gate(const KernelCall& call) {
  const Input<A> logits_TE(call.in[0]);
  const auto* experts_T2 = call.in[1].as<const int32_t>();
  const int64_t T = call.in[0].dim(0), E = call.in[0].dim(1);
  const A closeness = static_cast<A>(call.op->attributes.number("closeness"));
  const Output<A> g_T2(call.out[0]);
  for (int64_t t = 0; t < T; ++t) {
    const A* logits_E = logits_TE.at(t * E);
    const auto [first, second] = mixed_in_order(logits_E, experts_T2 + 2 * t);
    const A g_first = softmax_of_close(logits_E, E, first, -1, closeness)[static_cast<size_t>(first)];
    const A g_second = softmax_of_close(logits_E, E, second, first, closeness)[static_cast<size_t>(second)];
    for (int64_t j = 2 * t; j < 2 * t + 2; ++j) g_T2[j] = experts_T2[j] == first ? g_first : g_second;
  }
}

/// dl_e = Σ over both of dg·p_chosen·([e is chosen] − p_e).
template <class A>
void mixer_gate_dgrad(const KernelCall& call) {
  const Input<A> dg_T2(call.in[0]), logits_TE(call.in[1]);
  const auto* experts_T2 = call.in[2].as<const int32_t>();
  const int64_t T = call.in[1].dim(0), E = call.in[1].dim(1);
  const A closeness = static_cast<A>(call.op->attributes.number("closeness"));
  const Output<A> dlogits_TE(call.out[0]);
  dlogits_TE.fill(A(0));
  for (int64_t t = 0; t < T; ++t) {
    const A* logits_E = logits_TE.at(t * E);
    const auto [first, second] = mixed_in_order(logits_E, experts_T2 + 2 * t);
    for (const auto& [chosen, without] : {std::pair{first, -1}, {second, first}}) {
      const std::vector<A> p_E = softmax_of_close(logits_E, E, chosen, without, closeness);
      const A dg = dg_T2[2 * t + (experts_T2[2 * t] == chosen ? 0 : 1)], p = p_E[static_cast<size_t>(chosen)];
      for (int64_t e = 0; e < E; ++e)
        dlogits_TE[t * E + e] += dg * p * ((e == chosen ? A(1) : A(0)) - p_E[static_cast<size_t>(e)]);
    }
  }
}

/// out: s, g, experts, row_of, token_of, offsets.
template <class A>
void router(const KernelCall& call) {
  const Input<A> logits_TE(call.in[0]);
  const int64_t T = call.in[0].dim(0), E = call.in[0].dim(1), k = call.op->attributes.integer("top_k");
  const Output<A> s_TE(call.out[0]), g_Tk(call.out[1]);
  for (int64_t t = 0; t < T; ++t) scores_row(function_of(call), logits_TE.at(t * E), E, s_TE.at(t * E));
  choose_rows(call, s_TE.at(0), T, E, operand(call.in, 1), call.out.subspan(2));
  gate_rows(call, s_TE.at(0), call.out[2].as<const int32_t>(), T, E, k, g_Tk);
}

/// dlogits through scores of ds (absent: zeros) + the gate's gradient of dg (absent: zeros).
template <class A>
void router_dgrad(const KernelCall& call) {
  const Input<A> dg_Tk(call.in[0]), ds_TE(call.in[1]), s_TE(call.in[2]);
  const auto* experts_Tk = call.in[3].as<const int32_t>();
  const int64_t T = call.in[2].dim(0), E = call.in[2].dim(1), k = call.in[3].dim(1);
  const Output<A> dlogits_TE(call.out[0]);
  std::vector<A> sum_E(static_cast<size_t>(E));
  for (int64_t t = 0; t < T; ++t) {
    std::fill(sum_E.begin(), sum_E.end(), A(0));
    if (dg_Tk) gate_dgrad_row(call, dg_Tk.at(t * k), s_TE.at(t * E), experts_Tk + t * k, k, sum_E.data());
    if (ds_TE) {
      for (int64_t e = 0; e < E; ++e) sum_E[e] += ds_TE[t * E + e];
    }
    scores_dgrad_row(function_of(call), sum_E.data(), s_TE.at(t * E), E, dlogits_TE.at(t * E));
  }
}

/// load_e += offsets[e+1] − offsets[e].
void count_load(const KernelCall& call) {
  const auto* offsets = call.in[0].as<const int32_t>();
  auto* load_E = accumulator<double>(call.updates[0]);
  for (int64_t e = 0; e < call.updates[0].elements(); ++e) {
    const double rows = offsets[e + 1] - offsets[e];
    load_E[e] = call.overwrite ? rows : load_E[e] + rows;
  }
}

/// in: load, hyper. bias_e += rate·sign(mean(load) − load_e), rate = hyper[3]; by share, of the first experts
/// alone, rate·(1 − load_e ÷ mean(load)).
template <class A>
void router_bias_update(const KernelCall& call) {
  const auto* load_E = call.in[0].as<const double>();
  const int64_t E = call.in[0].elements();
  A* bias_E = accumulator<A>(call.updates[0]);
  const A rate = static_cast<A>(call.in[1].as<const double>()[3]);
  double sum = 0;
  for (int64_t e = 0; e < E; ++e) sum += load_E[e];
  const double mean = sum / static_cast<double>(E);
  if (const int64_t first = call.op->attributes.integer_or("by_share", 0); first > 0) {
    for (int64_t e = 0; e < first && mean > 0; ++e) bias_E[e] += rate * static_cast<A>(1 - load_E[e] / mean);
    return;
  }
  for (int64_t e = 0; e < E; ++e) {
    if (load_E[e] < mean) bias_E[e] += rate;
    if (load_E[e] > mean) bias_E[e] -= rate;
  }
}

}  // namespace

std::vector<KernelEntry> router_kernels() {
  return {entry("router_scores", by_type<in0, router_scores<float>, router_scores<double>>),
          entry("router_scores_dgrad", by_type<in0, router_scores_dgrad<float>, router_scores_dgrad<double>>),
          entry("choose", by_type<in0, choose<float>, choose<double>>),
          entry("choose_by_id", by_type<in1, choose_by_id<float>, choose_by_id<double>>),
          entry("gate", by_type<in0, gate<float>, gate<double>>),
          entry("gate_dgrad", by_type<in0, gate_dgrad<float>, gate_dgrad<double>>),
          entry("unit_gates", by_type<out0, unit_gates<float>, unit_gates<double>>),
          entry("mixer_gate", by_type<in0, mixer_gate<float>, mixer_gate<double>>),
          entry("mixer_gate_dgrad", by_type<in1, mixer_gate_dgrad<float>, mixer_gate_dgrad<double>>),
          entry("router", by_type<in0, router<float>, router<double>>),
          entry("router_dgrad", by_type<in2, router_dgrad<float>, router_dgrad<double>>),
          entry("count_load", count_load),
          entry("router_bias_update", by_type<updates0, router_bias_update<float>, router_bias_update<double>>)};
}

}  // namespace heddle::kernels::reference
