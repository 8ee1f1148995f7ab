// The router: scores, choice, gate and their gradients. T tokens, E experts, k experts a token, R = T·k rows sorted
// by (expert, token). Source: DeepSeek-V3 report, arXiv 2412.19437, section 2.1.2.
//
// A token's experts are taken one by one, each by a search over vectors (top-inl.h). Rows are sorted in two passes:
// blocks of tokens count their experts, then, the blocks' starts being known, place their rows. Nothing depends on
// the number of threads.
#include "heddle/kernels/host/simd_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "heddle/kernels/host/router.cpp"
#include "heddle/kernels/host/host.h"
#include "heddle/kernels/host/router.h"
#include "heddle/kernels/host/row_pieces.h"
#include "hwy/foreach_target.h"
// The order matters: these are compiled for each target.
#include "heddle/kernels/host/loss/softmax-inl.h"
#include "heddle/kernels/host/softplus-inl.h"
#include "heddle/kernels/host/top-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heddle::kernels::host::HWY_NAMESPACE {
namespace {
using device::KernelCall;

HWY_INLINE void scores_row(Scores scores, const float* logits_E, int64_t E, float* s_E) {
  if (scores == Scores::sigmoid) {
    sweep(E, [&](int64_t e, auto lanes, auto)
                 HEDDLE_BODY { store(sigmoid(load(logits_E + e, lanes)), s_E + e, lanes); });
    return;
  }
  if (scores == Scores::root_softplus) {
    sweep(E, [&](int64_t e, auto lanes, auto)
                 HEDDLE_BODY { store(hn::Sqrt(softplus(load(logits_E + e, lanes))), s_E + e, lanes); });
    return;
  }
  const V most = set(maximum(logits_E, E));
  Sum sum;
  sweep(E, [&](int64_t e, auto lanes, auto nth) HEDDLE_BODY {
    const V power = exp_up_to_88(hn::Sub(load(logits_E + e, lanes), most));
    store(power, s_E + e, lanes);
    sum.add(or_else(power, zero(), lanes), nth);
  });
  const V total = set(sum.total());
  sweep(E, [&](int64_t e, auto lanes, auto)
               HEDDLE_BODY { store(hn::Div(load(s_E + e, lanes), total), s_E + e, lanes); });
}

/// sigmoid: dlogits = ds·s·(1 − s); softmax: dlogits = s·(ds − Σ_e ds·s); root_softplus: dlogits = ds·(1 − e^−s²) ÷
/// 2s.
HWY_INLINE void scores_dgrad_row(Scores scores, const float* ds_E, const float* s_E, int64_t E, float* dlogits_E) {
  if (scores == Scores::root_softplus) {
    sweep(E, [&](int64_t e, auto lanes, auto) HEDDLE_BODY {
      store(hn::Mul(load(ds_E + e, lanes), root_softplus_slope(load(s_E + e, lanes))), dlogits_E + e, lanes);
    });
    return;
  }
  if (scores == Scores::sigmoid) {
    sweep(E, [&](int64_t e, auto lanes, auto) HEDDLE_BODY {
      const V s = load(s_E + e, lanes);
      store(hn::Mul(hn::Mul(load(ds_E + e, lanes), s), hn::Sub(set(1.0f), s)), dlogits_E + e, lanes);
    });
    return;
  }
  Sum dot;
  sweep(E, [&](int64_t e, auto lanes, auto nth)
               HEDDLE_BODY { dot.add_product(load(ds_E + e, lanes), load(s_E + e, lanes), nth); });
  const V sum = set(dot.total());
  sweep(E, [&](int64_t e, auto lanes, auto) HEDDLE_BODY {
    store(hn::Mul(load(s_E + e, lanes), hn::Sub(load(ds_E + e, lanes), sum)), dlogits_E + e, lanes);
  });
}

/// Zeros the orders of the experts whose group is not among the top_groups best.
HWY_INLINE void close_groups(const RouterChoice& choice, Orders& experts) {
  HWY_ALIGN float scores[kMostExperts];
  Orders groups;
  const int64_t size = choice.E / choice.groups, count = std::min(choice.group_score_top, size);
  for (int64_t g = 0; g < choice.groups; ++g) {
    const uint32_t* of = experts.of + g * size;
    if (count == 2) {
      scores[g] = sum_of_two_highest(of, size);
      continue;
    }
    Orders group;
    std::copy_n(of, size, group.of);
    std::fill_n(group.of + size, kLanes, 0);
    float sum = 0;
    for (int64_t i = 0; i < count; ++i) sum += float_of(of[group.take(size)]);
    scores[g] = sum;
  }
  groups.read(scores, choice.groups);
  for (int64_t i = 0; i < choice.top_groups; ++i) groups.take(choice.groups);
  for (int64_t g = 0; g < choice.groups; ++g) {
    if (groups.of[g] != 0) std::fill_n(experts.of + g * size, size, 0);
  }
}

/// The experts of one token, in increasing id.
HWY_INLINE void choose_row(const RouterChoice& choice, const float* s_E, const float* bias_E, int32_t* experts_k) {
  HWY_ALIGN float biased_E[kMostExperts];
  const int64_t E = choice.E;
  if (bias_E) {
    sweep(E, [&](int64_t e, auto lanes, auto) HEDDLE_BODY {
      store(hn::Add(load(s_E + e, lanes), load(bias_E + e, lanes)), biased_E + e, lanes);
    });
    s_E = biased_E;
  }
  Orders orders;
  orders.read(s_E, E);
  if (choice.top_groups < choice.groups) close_groups(choice, orders);
  uint64_t chosen[kMostExperts / 64] = {};
  for (int64_t j = 0; j < choice.top_k; ++j) {
    const auto e = static_cast<uint64_t>(orders.take(E));
    chosen[e / 64] |= uint64_t{1} << e % 64;
  }
  for (int64_t word = 0; word * 64 < E; ++word) {
    for (uint64_t left = chosen[word]; left != 0; left &= left - 1) {
      *experts_k++ = static_cast<int32_t>(word * 64 + std::countr_zero(left));
    }
  }
}

/// g_j = s of expert j [÷ (Σ_j s + 1e-20)]·scale.
HWY_INLINE void gate_row(const RouterGate& gate, const float* s_E, const int32_t* experts_k, int64_t k,
                         float* g_k) {
  float sum = 0;
  for (int64_t j = 0; j < k; ++j) sum += s_E[experts_k[j]];
  sum += kLeastSum;
  for (int64_t j = 0; j < k; ++j) {
    const float s = s_E[experts_k[j]];
    g_k[j] = (gate.normalize ? s / sum : s) * gate.scale;
  }
}

/// ds of expert j += scale·dg_j, or scale·(dg_j − Σ_i dg_i s_i ÷ Z) ÷ Z when normalized, Z = Σ_j s + 1e-20.
HWY_INLINE void gate_dgrad_row(const RouterGate& gate, const float* dg_k, const float* s_E,
                               const int32_t* experts_k, int64_t k, float* ds_E) {
  float sum = 0, dot = 0;
  for (int64_t j = 0; j < k; ++j) sum += s_E[experts_k[j]];
  sum += kLeastSum;
  for (int64_t j = 0; j < k; ++j) dot += dg_k[j] * s_E[experts_k[j]];
  for (int64_t j = 0; j < k; ++j) {
    ds_E[experts_k[j]] += gate.scale * (gate.normalize ? (dg_k[j] - dot / sum) / sum : dg_k[j]);
  }
}

/// p_e of the softmax over experts close to `chosen`, which has the largest logit of all but `without`; 0 of all
/// others. Returns p of `chosen`.
HWY_INLINE float softmax_of_close(const float* logits_E, int64_t E, int32_t chosen, int32_t without,
                                  float closeness, float* p_E) {
  const V most = set(logits_E[chosen]), limit = set(closeness);
  sweep(E, [&](int64_t e, auto lanes, auto) HEDDLE_BODY {
    const V x = load(logits_E + e, lanes), less = hn::Sub(most, x);
    const auto far = hn::Gt(hn::Div(less, hn::Max(hn::Abs(x), most)), limit);
    store(hn::IfThenZeroElse(far, exp_up_to_88(hn::Neg(less))), p_E + e, lanes);
  });
  if (without >= 0) p_E[without] = 0;
  Sum sum;
  sweep(E, [&](int64_t e, auto lanes, auto nth) HEDDLE_BODY { sum.add(load(p_E + e, lanes), nth); });
  const V total = set(sum.total());
  sweep(E, [&](int64_t e, auto lanes, auto)
               HEDDLE_BODY { store(hn::Div(load(p_E + e, lanes), total), p_E + e, lanes); });
  return p_E[chosen];
}
}  // namespace

/// With dg_T2 the gradient of the logits, else the gates.
void MixerRows(const KernelCall& call, bool gradient, int64_t begin, int64_t end) {
  const size_t at = gradient ? 1 : 0;
  const int64_t E = call.in[at].columns();
  const auto closeness = static_cast<float>(call.op->attributes.number("closeness"));
  HWY_ALIGN float p_E[kMostExperts];
  for (int64_t t = begin; t < end; ++t) {
    const float* logits_E = call.in[at].as<const float>() + t * E;
    const auto* experts = call.in[at + 1].as<const int32_t>() + 2 * t;
    // The one with the larger logit is first, of equal ones the lower.
    const bool swapped = experts[0] < experts[1] ? logits_E[experts[1]] > logits_E[experts[0]]
                                                 : logits_E[experts[0]] <= logits_E[experts[1]];
    float* to = call.out[0].as<float>() + t * (gradient ? E : 2);
    if (gradient) std::memset(to, 0, static_cast<size_t>(E) * 4);
    for (int turn = 0; turn < 2; ++turn) {
      const int j = swapped ? 1 - turn : turn;
      const float p = softmax_of_close(logits_E, E, experts[j], turn == 0 ? -1 : experts[1 - j], closeness, p_E);
      if (!gradient) {
        to[j] = p;
        continue;
      }
      const float d = call.in[0].as<const float>()[2 * t + j] * p;
      sweep(E, [&](int64_t e, auto lanes, auto) HEDDLE_BODY {
        store(hn::NegMulAdd(set(d), load(p_E + e, lanes), load(to + e, lanes)), to + e, lanes);
      });
      to[experts[j]] += d;
    }
  }
}

void ScoresRows(const KernelCall& call, int64_t begin, int64_t end) {
  const int64_t E = call.in[0].columns();
  const Scores scores = scores_of(call);
  for (int64_t t = begin; t < end; ++t) {
    scores_row(scores, call.in[0].as<const float>() + t * E, E, call.out[0].as<float>() + t * E);
  }
}

void ScoresDgradRows(const KernelCall& call, int64_t begin, int64_t end) {
  const int64_t E = call.in[0].columns();
  const Scores scores = scores_of(call);
  for (int64_t t = begin; t < end; ++t) {
    scores_dgrad_row(scores, call.in[0].as<const float>() + t * E, call.in[1].as<const float>() + t * E, E,
                     call.out[0].as<float>() + t * E);
  }
}

void GateRows(const KernelCall& call, int64_t begin, int64_t end) {
  const int64_t E = call.in[0].columns(), k = call.in[1].columns();
  const RouterGate gate(call);
  for (int64_t t = begin; t < end; ++t) {
    gate_row(gate, call.in[0].as<const float>() + t * E, call.in[1].as<const int32_t>() + t * k, k,
             call.out[0].as<float>() + t * k);
  }
}

void GateDgradRows(const KernelCall& call, int64_t begin, int64_t end) {
  const int64_t E = call.in[1].columns(), k = call.in[2].columns();
  const RouterGate gate(call);
  for (int64_t t = begin; t < end; ++t) {
    float* ds_E = call.out[0].as<float>() + t * E;
    std::memset(ds_E, 0, static_cast<size_t>(E) * 4);
    gate_dgrad_row(gate, call.in[0].as<const float>() + t * k, call.in[1].as<const float>() + t * E,
                   call.in[2].as<const int32_t>() + t * k, k, ds_E);
  }
}

/// Rows of blocks from a multiple of kRowsPerPartial on. With `fused` the scores are made from in[0] and the gate
/// from them; else in[0] is the scores. Counts the experts of each block into scratch, [blocks, E].
void ChooseRows(const KernelCall& call, bool fused, int64_t begin, int64_t end) {
  const RouterChoice choice(call);
  const int64_t E = choice.E, k = choice.top_k;
  const float* bias_E = call.in.size() > 1 ? call.in[1].as<const float>() : nullptr;
  auto* experts_Tk = call.out[fused ? 2 : 0].as<int32_t>();
  const Scores scores = fused ? scores_of(call) : Scores::sigmoid;
  const RouterGate gate = fused ? RouterGate(call) : RouterGate();
  for (int64_t t = begin; t < end; ++t) {
    auto* counts_E = reinterpret_cast<int32_t*>(call.scratch) + t / kRowsPerPartial * E;
    if (t % kRowsPerPartial == 0) std::fill_n(counts_E, E, 0);
    const float* s_E = call.in[0].as<const float>() + t * E;
    if (fused) {
      scores_row(scores, s_E, E, call.out[0].as<float>() + t * E);
      s_E = call.out[0].as<const float>() + t * E;
    }
    int32_t* experts_k = experts_Tk + t * k;
    choose_row(choice, s_E, bias_E, experts_k);
    for (int64_t j = 0; j < k; ++j) ++counts_E[experts_k[j]];
    if (fused) gate_row(gate, s_E, experts_k, k, call.out[1].as<float>() + t * k);
  }
}

void RouterDgradRows(const KernelCall& call, int64_t begin, int64_t end) {
  const int64_t E = call.in[2].columns(), k = call.in[3].columns();
  const Scores scores = scores_of(call);
  const RouterGate gate(call);
  HWY_ALIGN float sum_E[kMostExperts];
  for (int64_t t = begin; t < end; ++t) {
    const float* s_E = call.in[2].as<const float>() + t * E;
    if (call.in[1]) {
      std::memcpy(sum_E, call.in[1].as<const float>() + t * E, static_cast<size_t>(E) * 4);
    } else {
      std::memset(sum_E, 0, static_cast<size_t>(E) * 4);
    }
    if (call.in[0]) {
      gate_dgrad_row(gate, call.in[0].as<const float>() + t * k, s_E, call.in[3].as<const int32_t>() + t * k, k,
                     sum_E);
    }
    scores_dgrad_row(scores, sum_E, s_E, E, call.out[0].as<float>() + t * E);
  }
}

}  // namespace heddle::kernels::host::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heddle::kernels::host {
namespace {
using device::KernelCall;
HWY_EXPORT(ScoresRows);
HWY_EXPORT(ScoresDgradRows);
HWY_EXPORT(GateRows);
HWY_EXPORT(GateDgradRows);
HWY_EXPORT(ChooseRows);
HWY_EXPORT(RouterDgradRows);
HWY_EXPORT(MixerRows);

void rows(const KernelCall& call, const device::TensorView& s_TE, RowKernel piece) {
  over_rows(call, s_TE.rows(), 3 * s_TE.columns() * 4, piece);
}
void router_scores(const KernelCall& call) { rows(call, call.in[0], HWY_DYNAMIC_DISPATCH(ScoresRows)); }
void router_scores_dgrad(const KernelCall& call) { rows(call, call.in[0], HWY_DYNAMIC_DISPATCH(ScoresDgradRows)); }
void gate(const KernelCall& call) { rows(call, call.in[0], HWY_DYNAMIC_DISPATCH(GateRows)); }
void gate_dgrad(const KernelCall& call) { rows(call, call.in[1], HWY_DYNAMIC_DISPATCH(GateDgradRows)); }
void mixer(const KernelCall& call, const device::TensorView& logits_TE, bool gradient) {
  over_rows(logits_TE.rows(), 3 * logits_TE.columns() * 4, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(MixerRows)
    (call, gradient, begin, end);
  });
}
void mixer_gate(const KernelCall& call) { mixer(call, call.in[0], false); }
void mixer_gate_dgrad(const KernelCall& call) { mixer(call, call.in[1], true); }
void router_dgrad(const KernelCall& call) { rows(call, call.in[2], HWY_DYNAMIC_DISPATCH(RouterDgradRows)); }

/// out: experts, row_of, token_of, offsets. Scratch holds how often each block of tokens chose each expert and
/// becomes the next row of that block for that expert.
void sort_rows(std::span<const device::TensorView> out, int64_t E, std::byte* scratch) {
  const int64_t T = out[0].dim(0), k = out[0].dim(1), blocks = partial_count(T);
  const auto* experts_Tk = out[0].as<const int32_t>();
  auto *row_of_Tk = out[1].as<int32_t>(), *token_of_R = out[2].as<int32_t>(), *offsets = out[3].as<int32_t>();
  auto* counts = reinterpret_cast<int32_t*>(scratch);
  std::fill_n(offsets, E + 1, 0);
  for (int64_t b = 0; b < blocks; ++b) {
    for (int64_t e = 0; e < E; ++e) offsets[e + 1] += counts[b * E + e];
  }
  for (int64_t e = 0; e < E; ++e) offsets[e + 1] += offsets[e];
  // The ends of offsets run ahead while blocks take their shares, and stand one expert early at the end.
  for (int64_t b = 0; b < blocks; ++b) {
    for (int64_t e = 0; e < E; ++e) {
      const int32_t count = counts[b * E + e];
      counts[b * E + e] = offsets[e];
      offsets[e] += count;
    }
  }
  for (int64_t e = E; e > 0; --e) offsets[e] = offsets[e - 1];
  offsets[0] = 0;
  over_rows(
      T, k * 16,
      [&](int64_t begin, int64_t end) {
        for (int64_t t = begin; t < end; ++t) {
          int32_t* next_E = counts + t / kRowsPerPartial * E;
          for (int64_t i = t * k; i < (t + 1) * k; ++i) {
            const int32_t row = next_E[experts_Tk[i]]++;
            row_of_Tk[i] = row;
            token_of_R[row] = static_cast<int32_t>(t);
          }
        }
      },
      kRowsPerPartial);
}

void choose_and_sort(const KernelCall& call, bool fused) {
  const RouterChoice choice(call);
  HEDDLE_CHECK(choice.groups > 0 && choice.E % choice.groups == 0, "{} experts in {} groups", choice.E,
               choice.groups);
  HEDDLE_CHECK(choice.top_k <= std::min(choice.groups, choice.top_groups) * (choice.E / choice.groups),
               "top {} of the experts of {} groups of {}", choice.top_k, choice.top_groups,
               choice.E / choice.groups);
  over_rows(
      call.in[0].rows(), 4 * choice.E * 4,
      [&](int64_t begin, int64_t end) {
        HWY_DYNAMIC_DISPATCH(ChooseRows)
        (call, fused, begin, end);
      },
      kRowsPerPartial);
  sort_rows(call.out.subspan(fused ? 2 : 0), choice.E, call.scratch);
}
void choose(const KernelCall& call) { choose_and_sort(call, false); }

void choose_by_id(const KernelCall& call) {
  const auto* ids_T = call.in[0].as<const int32_t>();
  const auto* table_Vk = call.in[1].as<const float>();
  const int64_t V = call.in[1].rows(), k = call.in[1].columns(), E = call.op->attributes.integer("experts");
  over_rows(
      call.in[0].elements(), k * 16,
      [&](int64_t begin, int64_t end) {
        for (int64_t t = begin; t < end; ++t) {
          auto* counts_E = reinterpret_cast<int32_t*>(call.scratch) + t / kRowsPerPartial * E;
          if (t % kRowsPerPartial == 0) std::fill_n(counts_E, E, 0);
          const int64_t id = std::max(ids_T[t], 0);
          HEDDLE_CHECK(id < V, "token id {} in a table of {}", id, V);
          int32_t* experts_k = call.out[0].as<int32_t>() + t * k;
          for (int64_t j = 0; j < k; ++j) {
            const float expert = table_Vk[id * k + j];
            HEDDLE_CHECK(expert >= 0 && expert < static_cast<float>(E), "expert {} of {} for token id {}", expert,
                         E, id);
            experts_k[j] = static_cast<int32_t>(expert);
            ++counts_E[experts_k[j]];
          }
          std::sort(experts_k, experts_k + k);
        }
      },
      kRowsPerPartial);
  sort_rows(call.out, E, call.scratch);
}
int64_t choice_by_id_scratch(const ir::Listing& listing, const ir::Op& op, const ir::RowCounts& rows) {
  return partial_count(listing.elements(op.in[0], rows)) * op.attributes.integer("experts") * 4;
}
void router(const KernelCall& call) { choose_and_sort(call, true); }

int64_t choice_scratch(const ir::Listing& listing, const ir::Op& op, const ir::RowCounts& rows) {
  const int64_t E = listing.value(op.in[0]).shape[1].count;
  return partial_count(listing.elements(op.in[0], rows) / std::max<int64_t>(1, E)) * E * 4;
}

template <Letters in, size_t scores_at>
Support routes(const ir::Listing& listing, const ir::Op& op) {
  const int64_t E = listing.value(op.in[scores_at]).shape[1].count;
  if (E > kMostExperts) return Support::no(fmt::format("{} experts, at most {}", E, kMostExperts));
  return takes<in>(listing, op);
}

void count_load(const KernelCall& call) {
  const auto* offsets = call.in[0].as<const int32_t>();
  auto* load_E = call.updates[0].as<double>();
  for (int64_t e = 0; e < call.updates[0].elements(); ++e) {
    const double rows = offsets[e + 1] - offsets[e];
    load_E[e] = call.overwrite ? rows : load_E[e] + rows;
  }
}

/// in: load, hyper. bias_e += rate·sign(mean(load) − load_e), rate = hyper[3]; by share, of the first experts
/// alone, rate·(1 − load_e ÷ mean(load)).
void router_bias_update(const KernelCall& call) {
  const auto* load_E = call.in[0].as<const double>();
  const int64_t E = call.in[0].elements();
  auto* bias_E = call.updates[0].as<float>();
  const auto rate = static_cast<float>(call.in[1].as<const double>()[3]);
  double sum = 0;
  for (int64_t e = 0; e < E; ++e) sum += load_E[e];
  const double mean = sum / static_cast<double>(E);
  if (const int64_t first = call.op->attributes.integer_or("by_share", 0); first > 0) {
    for (int64_t e = 0; e < first && mean > 0; ++e) bias_E[e] += rate * static_cast<float>(1 - load_E[e] / mean);
    return;
  }
  for (int64_t e = 0; e < E; ++e) {
    if (load_E[e] < mean) bias_E[e] += rate;
    if (load_E[e] > mean) bias_E[e] -= rate;
  }
}

}  // namespace

std::vector<KernelEntry> router_kernels() {
  return {{"router_scores", "host", "highway", takes<"a">, nullptr, router_scores},
          {"router_scores_dgrad", "host", "highway", takes<"aa">, nullptr, router_scores_dgrad},
          {"choose", "host", "highway", routes<"aa", 0>, choice_scratch, choose},
          {"choose_by_id", "host", "plain", takes<"ia">, choice_by_id_scratch, choose_by_id},
          {"gate", "host", "plain", takes<"ai">, nullptr, gate},
          {"gate_dgrad", "host", "plain", takes<"aai">, nullptr, gate_dgrad},
          {"mixer_gate", "host", "highway", routes<"ai", 0>, nullptr, mixer_gate},
          {"mixer_gate_dgrad", "host", "highway", routes<"aai", 1>, nullptr, mixer_gate_dgrad},
          {"router", "host", "highway", routes<"aa", 0>, choice_scratch, router},
          {"router_dgrad", "host", "highway", routes<"aaai", 2>, nullptr, router_dgrad},
          {"count_load", "host", "plain", takes<"i", "d">, nullptr, count_load},
          {"router_bias_update", "host", "plain", takes<"dd", "a">, nullptr, router_bias_update}};
}

}  // namespace heddle::kernels::host
#endif  // HWY_ONCE
