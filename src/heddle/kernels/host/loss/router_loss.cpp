// The auxiliary loss that balances experts within a sequence. T tokens in sequences of S, E experts, k a token.
// Source: DeepSeek-V3 report, arXiv 2412.19437, equations 17–20.
//   f_e = E/(k·S)·#{t: e among the k highest of s_t}, P_e = Σ_t s_te/Z_t ÷ S, Z_t = Σ_e s_te + 1e-20
//   loss = Σ over sequences of alpha·Σ_e f_e·P_e;  ds_te = scale·alpha/(S·Z_t)·(f_e − Σ_i f_i s_ti ÷ Z_t)
// Blocks of up to kRowsPerPartial rows of one sequence leave counts and shares in scratch, joined in f64 in order.
#include "heddle/kernels/host/simd_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "heddle/kernels/host/loss/router_loss.cpp"
#include "heddle/kernels/host/host.h"
#include "heddle/kernels/host/router.h"
#include "heddle/kernels/host/row_pieces.h"
#include "hwy/foreach_target.h"
// The order matters: these are compiled for each target.
#include "heddle/kernels/host/lanes-inl.h"
#include "heddle/kernels/host/top-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heddle::kernels::host::HWY_NAMESPACE {
namespace {
using device::KernelCall;

HWY_INLINE float row_sum(const float* s_E, int64_t E) {
  Sum sum;
  sweep(E, [&](int64_t e, auto lanes, auto nth) HEDDLE_BODY { sum.add(load(s_E + e, lanes), nth); });
  return sum.total() + kLeastSum;
}
}  // namespace

/// counts_E and shares_E of the rows begin .. end.
void BalanceRows(const float* s_TE, int64_t E, int64_t k, int64_t begin, int64_t end, float* counts_E,
                 float* shares_E) {
  std::fill_n(counts_E, E, 0.0f);
  std::fill_n(shares_E, E, 0.0f);
  Orders orders;
  for (int64_t t = begin; t < end; ++t) {
    const float* s_E = s_TE + t * E;
    const V sum = set(row_sum(s_E, E));
    sweep(E, [&](int64_t e, auto lanes, auto) HEDDLE_BODY {
      store(hn::Add(load(shares_E + e, lanes), hn::Div(load(s_E + e, lanes), sum)), shares_E + e, lanes);
    });
    orders.read(s_E, E);
    for (int64_t j = 0; j < k; ++j) counts_E[orders.take(E)] += 1.0f;
  }
}

/// ds of one row; `factor` is scale·alpha/S.
void BalanceDgradRow(const float* s_E, const float* f_E, int64_t E, float factor, float* ds_E) {
  const float sum = row_sum(s_E, E);
  Sum dot;
  sweep(E, [&](int64_t e, auto lanes, auto nth)
               HEDDLE_BODY { dot.add_product(load(f_E + e, lanes), load(s_E + e, lanes), nth); });
  const V mean = set(dot.total() / sum), slope = set(factor / sum);
  sweep(E, [&](int64_t e, auto lanes, auto)
               HEDDLE_BODY { store(hn::Mul(slope, hn::Sub(load(f_E + e, lanes), mean)), ds_E + e, lanes); });
}

}  // namespace heddle::kernels::host::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heddle::kernels::host {
namespace {
using device::KernelCall;
HWY_EXPORT(BalanceRows);
HWY_EXPORT(BalanceDgradRow);

/// The sizes of a call, and where its sums stand in scratch: [sequences, blocks, 2, E], then f [sequences, E].
struct Balance {
  Balance(const ir::Op& op, int64_t T, int64_t E)
      : T(T),
        E(E),
        S(op.attributes.integer("sequence")),
        k(op.attributes.integer("top_k")),
        alpha(op.attributes.number("alpha")),
        sequences(T / S),
        blocks(partial_count(S)) {}
  int64_t bytes() const { return sequences * (2 * blocks + 1) * E * 4; }
  float* counts(std::byte* scratch, int64_t block) const {
    return reinterpret_cast<float*>(scratch) + block * 2 * E;
  }
  float* f(std::byte* scratch, int64_t sequence) const {
    return reinterpret_cast<float*>(scratch) + (sequences * blocks * 2 + sequence) * E;
  }
  int64_t T, E, S, k;
  double alpha;
  int64_t sequences, blocks;
};

Balance balance_of(const KernelCall& call) { return {*call.op, call.in[0].rows(), call.in[0].columns()}; }

void count_blocks(const KernelCall& call, const Balance& b) {
  HEDDLE_CHECK(b.k <= b.E, "top {} of {} experts", b.k, b.E);
  over_rows(b.sequences * b.blocks, 2 * kRowsPerPartial * b.E * 4, [&](int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; ++block) {
      const int64_t start = block / b.blocks * b.S, from = block % b.blocks * kRowsPerPartial;
      float* counts_E = b.counts(call.scratch, block);
      HWY_DYNAMIC_DISPATCH(BalanceRows)
      (call.in[0].as<const float>(), b.E, b.k, start + from, start + std::min(b.S, from + kRowsPerPartial),
       counts_E, counts_E + b.E);
    }
  });
}

/// Σ over the blocks of a sequence of what stands `at` places after their counts.
double sum_of_blocks(const KernelCall& call, const Balance& b, int64_t sequence, int64_t at) {
  double sum = 0;
  for (int64_t block = 0; block < b.blocks; ++block) {
    sum += b.counts(call.scratch, sequence * b.blocks + block)[at];
  }
  return sum;
}
double f_of(const KernelCall& call, const Balance& b, int64_t sequence, int64_t e) {
  return sum_of_blocks(call, b, sequence, e) * static_cast<double>(b.E) / static_cast<double>(b.k * b.S);
}

void sequence_aux_loss(const KernelCall& call) {
  const Balance b = balance_of(call);
  count_blocks(call, b);
  double loss = 0;
  for (int64_t sequence = 0; sequence < b.sequences; ++sequence) {
    double dot = 0;
    for (int64_t e = 0; e < b.E; ++e) {
      dot += f_of(call, b, sequence, e) * sum_of_blocks(call, b, sequence, b.E + e) / static_cast<double>(b.S);
    }
    loss += b.alpha * dot;
  }
  call.out[0].as<double>()[0] = loss;
}

void sequence_aux_loss_dgrad(const KernelCall& call) {
  const Balance b = balance_of(call);
  count_blocks(call, b);
  for (int64_t sequence = 0; sequence < b.sequences; ++sequence) {
    for (int64_t e = 0; e < b.E; ++e) {
      b.f(call.scratch, sequence)[e] = static_cast<float>(f_of(call, b, sequence, e));
    }
  }
  const double scale = call.in[1].as<const float>()[call.op->attributes.integer("scale_index")];
  const auto factor = static_cast<float>(scale * b.alpha / static_cast<double>(b.S));
  over_rows(b.T, 2 * b.E * 4, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      HWY_DYNAMIC_DISPATCH(BalanceDgradRow)
      (call.in[0].as<const float>() + t * b.E, b.f(call.scratch, t / b.S), b.E, factor,
       call.out[0].as<float>() + t * b.E);
    }
  });
}

int64_t balance_scratch(const ir::Listing& listing, const ir::Op& op, const ir::RowCounts& rows) {
  const int64_t E = listing.value(op.in[0]).shape[1].count;
  return Balance(op, listing.elements(op.in[0], rows) / std::max<int64_t>(1, E), E).bytes();
}

Support balances(const ir::Listing& listing, const ir::Op& op) {
  const int64_t E = listing.value(op.in[0]).shape[1].count;
  if (E > kMostExperts) return Support::no(fmt::format("{} experts, at most {}", E, kMostExperts));
  if (op.in.size() > 2) return Support::no("the sequences are shared with other ranks");
  return takes<"aa">(listing, op);
}

}  // namespace

std::vector<KernelEntry> router_loss_kernels() {
  return {{"sequence_aux_loss", "host", "highway", balances, balance_scratch, sequence_aux_loss},
          {"sequence_aux_loss_dgrad", "host", "highway", balances, balance_scratch, sequence_aux_loss_dgrad}};
}

}  // namespace heddle::kernels::host
#endif  // HWY_ONCE
