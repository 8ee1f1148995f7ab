// Rows to the experts and back. T tokens, H hidden, k experts a token, R = T·k rows; row_of[t,j] is the row of slot
// j. All go token by token: a token's own row is read or written once, its k rows once each.
//   permute        p[row_of[t,j]] = x_t              permute_dgrad    dx_t = Σ_j dp[row_of[t,j]]
//   unpermute      c_t = Σ_j g[t,j]·y[row_of[t,j]] (+ residual)
//   unpermute_dgrad  dy[row_of[t,j]] = g[t,j]·dc_t, dg[t,j] = dc_t·y[row_of[t,j]], in one pass
//                 row_of[t,j] −1: no row, which adds nothing; rows that are nobody's are zeros
//                 (ops/experts/capacity.cpp)
//   weigh_dgrad    the same over S rows that already are dc_t: de_s = g_s·dr_s, dg_s = dr_s·e_s
//   zero_experts   y_t = z_t·x_t, z_t = Σ_j g[t,j] over experts from `first` on; zero_experts_dgrad dx_t =
//   z_t·dy_t,
//                  dg[t,j] = dy_t·x_t of these, else 0
// Sums over j are formed in the tree of device/merge_tree.h, over expert ids.
#include "heddle/kernels/host/simd_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "heddle/kernels/host/permute.cpp"
#include <algorithm>
#include <cstring>
#include <vector>

#include "heddle/device/merge_tree.h"
#include "heddle/kernels/host/host.h"
#include "heddle/kernels/host/row_pieces.h"
#include "hwy/foreach_target.h"
// The order matters: this one is compiled for each target.
#include "heddle/kernels/host/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heddle::kernels::host::HWY_NAMESPACE {
namespace {
using device::KernelCall;

template <class X>
void permute(const KernelCall& call, int64_t begin, int64_t end) {
  const int64_t H = call.in[0].columns(), k = call.in[1].columns();
  const auto* row_of_Tk = call.in[1].as<const int32_t>();
  for (int64_t t = begin; t < end; ++t) {
    const X* x_H = call.in[0].as<const X>() + t * H;
    for (int64_t j = 0; j < k; ++j) {
      if (row_of_Tk[t * k + j] >= 0) copy(x_H, H, call.out[0].as<X>() + row_of_Tk[t * k + j] * H);
    }
  }
}

/// to_H = Σ_j weight_j·rows[row_of_j] in the tree that `merges_k` states (+ residual_H), rounded once. No weights:
/// all 1.
template <bool weighted, class X>
HWY_INLINE void gather(const X* rows_RH, const int32_t* row_of_k, const uint8_t* merges_k, const float* weight_k,
                       int64_t k, int64_t H, const X* residual_H, X* to_H) {
  sweep_by_runs(H, [&](int64_t h, auto lanes, auto run) HEDDLE_BODY {
    constexpr int vectors = decltype(run)::value;
    V pending[device::kMostPendingSums][vectors];
    V sum[vectors];
    int64_t depth = 0;
    if (k == 0) {
      for (int i = 0; i < vectors; ++i) sum[i] = zero();
    }
    for (int64_t j = 0; j < k; ++j) {
      const X* row = rows_RH + row_of_k[j] * H + h;
      for (int i = 0; i < vectors; ++i) {
        const V y = load(row + i * kLanes, lanes);
        sum[i] = weighted ? hn::Mul(set(weight_k[j]), y) : y;
      }
      for (int m = merges_k[j]; m > 0; --m) {
        --depth;
        for (int i = 0; i < vectors; ++i) sum[i] = hn::Add(pending[depth][i], sum[i]);
      }
      if (j + 1 == k) break;
      for (int i = 0; i < vectors; ++i) pending[depth][i] = sum[i];
      ++depth;
    }
    for (int i = 0; i < vectors; ++i) {
      if (residual_H) sum[i] = hn::Add(sum[i], load(residual_H + h + i * kLanes, lanes));
      store(sum[i], to_H + h + i * kLanes, lanes);
    }
  });
}

/// True if one of them is none. Reads all: a loop that may stop early is not run in vectors.
HWY_INLINE bool some_missing(const int32_t* rows, int64_t count) {
  int32_t all = 0;
  for (int64_t i = 0; i < count; ++i) all |= rows[i];
  return all < 0;
}

/// The rows of a token, those that it has, with the tree of their sum.
class TokenRows {
 public:
  TokenRows(const device::TensorView& row_of, const device::TensorView& experts, const float* weight_Tk)
      : k_(row_of.columns()),
        row_of_Tk_(row_of.as<const int32_t>()),
        experts_Tk_(experts.as<const int32_t>()),
        weight_Tk_(weight_Tk),
        kept_(static_cast<size_t>(2 * k_)),
        weights_(static_cast<size_t>(k_)),
        merges_(static_cast<size_t>(k_)) {}
  void take(int64_t t) {
    rows = row_of_Tk_ + t * k_;
    const int32_t* experts = experts_Tk_ + t * k_;
    weights = weight_Tk_ == nullptr ? nullptr : weight_Tk_ + t * k_;
    count = k_;
    if (some_missing(rows, k_)) {
      count = 0;
      for (int64_t j = 0; j < k_; ++j) {
        if (rows[j] < 0) continue;
        if (weights != nullptr) weights_[count] = weights[j];
        kept_[k_ + count] = experts[j];
        kept_[count++] = rows[j];
      }
      rows = kept_.data();
      experts = kept_.data() + k_;
      if (weights != nullptr) weights = weights_.data();
    }
    if (count > 0) device::merges_of(experts, count, merges_.data());
  }
  int64_t count = 0;
  const int32_t* rows = nullptr;
  const float* weights = nullptr;
  const uint8_t* merges() const { return merges_.data(); }

 private:
  int64_t k_;
  const int32_t *row_of_Tk_, *experts_Tk_;
  const float* weight_Tk_;
  std::vector<int32_t> kept_;
  std::vector<float> weights_;
  std::vector<uint8_t> merges_;
};

template <class X>
void permute_dgrad(const KernelCall& call, int64_t begin, int64_t end) {
  const int64_t H = call.in[0].columns();
  TokenRows token(call.in[1], call.in[2], nullptr);
  for (int64_t t = begin; t < end; ++t) {
    token.take(t);
    gather<false, X>(call.in[0].as<const X>(), token.rows, token.merges(), nullptr, token.count, H, nullptr,
                     call.out[0].as<X>() + t * H);
  }
}

template <class X>
void unpermute(const KernelCall& call, int64_t begin, int64_t end) {
  const int64_t H = call.in[0].columns();
  const bool residual = call.in.size() > 4 && call.in[4];
  TokenRows token(call.in[2], call.in[3], call.in[1].as<const float>());
  for (int64_t t = begin; t < end; ++t) {
    token.take(t);
    gather<true, X>(call.in[0].as<const X>(), token.rows, token.merges(), token.weights, token.count, H,
                    residual ? call.in[4].as<const X>() + t * H : nullptr, call.out[0].as<X>() + t * H);
  }
}

/// dy_H = g·dc_H; returns dc·y.
template <class X>
HWY_INLINE float weigh(float gate, const X* dc_H, const X* y_H, int64_t H, X* dy_H) {
  const V g = set(gate);
  Sum dot;
  sweep(H, [&](int64_t h, auto lanes, auto nth) HEDDLE_BODY {
    const V dc = load(dc_H + h, lanes);
    dot.add_product(dc, load(y_H + h, lanes), nth);
    store(hn::Mul(g, dc), dy_H + h, lanes);
  });
  return dot.total();
}

template <class X>
void unpermute_dgrad(const KernelCall& call, int64_t begin, int64_t end) {
  const int64_t H = call.in[0].columns(), k = call.in[3].columns();
  for (int64_t t = begin; t < end; ++t) {
    const X* dc_H = call.in[0].as<const X>() + t * H;
    for (int64_t j = t * k; j < (t + 1) * k; ++j) {
      if (call.in[3].as<const int32_t>()[j] < 0) {
        call.out[1].as<float>()[j] = 0;
        continue;
      }
      const int64_t at = call.in[3].as<const int32_t>()[j] * H;
      call.out[1].as<float>()[j] =
          weigh(call.in[2].as<const float>()[j], dc_H, call.in[1].as<const X>() + at, H, call.out[0].as<X>() + at);
    }
  }
}

template <class X>
void weigh_dgrad(const KernelCall& call, int64_t begin, int64_t end) {
  const int64_t H = call.in[0].columns();
  for (int64_t s = begin; s < end; ++s) {
    call.out[1].as<float>()[s] = weigh(call.in[2].as<const float>()[s], call.in[0].as<const X>() + s * H,
                                       call.in[1].as<const X>() + s * H, H, call.out[0].as<X>() + s * H);
  }
}

/// The sum of the gates of a token's experts from `first` on, in order.
HWY_INLINE float gate_of_zero_experts(const float* g_k, const int32_t* experts_k, int64_t k, int64_t first) {
  float sum = 0;
  for (int64_t j = 0; j < k; ++j) sum += experts_k[j] >= first ? g_k[j] : 0.0f;
  return sum;
}

template <class X>
void zero_experts(const KernelCall& call, int64_t begin, int64_t end) {
  const int64_t H = call.in[0].columns(), k = call.in[2].columns(), first = call.op->attributes.integer("first");
  for (int64_t t = begin; t < end; ++t) {
    const X* x_H = call.in[0].as<const X>() + t * H;
    X* y_H = call.out[0].as<X>() + t * H;
    const V z = set(gate_of_zero_experts(call.in[1].as<const float>() + t * k,
                                         call.in[2].as<const int32_t>() + t * k, k, first));
    sweep(H, [&](int64_t h, auto lanes, auto)
                 HEDDLE_BODY { store(hn::Mul(z, load(x_H + h, lanes)), y_H + h, lanes); });
  }
}

template <class X>
void zero_experts_dgrad(const KernelCall& call, int64_t begin, int64_t end) {
  const int64_t H = call.in[0].columns(), k = call.in[3].columns(), first = call.op->attributes.integer("first");
  for (int64_t t = begin; t < end; ++t) {
    const auto* experts_k = call.in[3].as<const int32_t>() + t * k;
    const float z = gate_of_zero_experts(call.in[2].as<const float>() + t * k, experts_k, k, first);
    const float dot = weigh(z, call.in[0].as<const X>() + t * H, call.in[1].as<const X>() + t * H, H,
                            call.out[0].as<X>() + t * H);
    for (int64_t j = 0; j < k; ++j) call.out[1].as<float>()[t * k + j] = experts_k[j] >= first ? dot : 0.0f;
  }
}
}  // namespace

void PermuteRows(const KernelCall& call, int64_t begin, int64_t end) {
  call.in[0].dtype == Dtype::bf16 ? permute<bf16>(call, begin, end) : permute<float>(call, begin, end);
}
void PermuteDgradRows(const KernelCall& call, int64_t begin, int64_t end) {
  call.in[0].dtype == Dtype::bf16 ? permute_dgrad<bf16>(call, begin, end) : permute_dgrad<float>(call, begin, end);
}
void UnpermuteRows(const KernelCall& call, int64_t begin, int64_t end) {
  call.in[0].dtype == Dtype::bf16 ? unpermute<bf16>(call, begin, end) : unpermute<float>(call, begin, end);
}
void UnpermuteDgradRows(const KernelCall& call, int64_t begin, int64_t end) {
  call.in[0].dtype == Dtype::bf16 ? unpermute_dgrad<bf16>(call, begin, end)
                                  : unpermute_dgrad<float>(call, begin, end);
}
void WeighDgradRows(const KernelCall& call, int64_t begin, int64_t end) {
  call.in[0].dtype == Dtype::bf16 ? weigh_dgrad<bf16>(call, begin, end) : weigh_dgrad<float>(call, begin, end);
}
void ZeroExpertsRows(const KernelCall& call, int64_t begin, int64_t end) {
  call.in[0].dtype == Dtype::bf16 ? zero_experts<bf16>(call, begin, end) : zero_experts<float>(call, begin, end);
}
void ZeroExpertsDgradRows(const KernelCall& call, int64_t begin, int64_t end) {
  call.in[0].dtype == Dtype::bf16 ? zero_experts_dgrad<bf16>(call, begin, end)
                                  : zero_experts_dgrad<float>(call, begin, end);
}

}  // namespace heddle::kernels::host::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heddle::kernels::host {
namespace {
using device::KernelCall;
HWY_EXPORT(PermuteRows);
HWY_EXPORT(PermuteDgradRows);
HWY_EXPORT(UnpermuteRows);
HWY_EXPORT(UnpermuteDgradRows);
HWY_EXPORT(WeighDgradRows);
HWY_EXPORT(ZeroExpertsRows);
HWY_EXPORT(ZeroExpertsDgradRows);

/// `tensors` tensors of R rows move, besides those of T.
void tokens(const KernelCall& call, const device::TensorView& row_of, int64_t tensors, RowKernel piece) {
  const int64_t T = row_of.dim(0), k = row_of.dim(1);
  over_rows(call, T, (tensors * k + 1) * call.in[0].columns() * size_of(call.in[0].dtype), piece);
}

/// Zeros in the rows of `out` that no slot has.
void clear_others(const device::TensorView& row_of, const device::TensorView& out) {
  const auto* row_of_Tk = row_of.as<const int32_t>();
  const int64_t slots = row_of.elements(), rows = out.rows(), bytes = out.columns() * size_of(out.dtype);
  int32_t all = 0;  // read whole, in vectors
  for (int64_t i = 0; i < slots; ++i) all |= row_of_Tk[i];
  if (rows == slots && all >= 0) return;
  std::vector<uint8_t> is_empty(static_cast<size_t>(rows), 1);
  for (int64_t i = 0; i < slots; ++i) {
    if (row_of_Tk[i] >= 0) is_empty[row_of_Tk[i]] = 0;
  }
  over_rows(rows, bytes, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      if (is_empty[r] != 0) std::memset(out.as<std::byte>() + r * bytes, 0, static_cast<size_t>(bytes));
    }
  });
}

void permute(const KernelCall& call) {
  clear_others(call.in[1], call.out[0]);
  tokens(call, call.in[1], 1, HWY_DYNAMIC_DISPATCH(PermuteRows));
}
void permute_dgrad(const KernelCall& call) { tokens(call, call.in[1], 1, HWY_DYNAMIC_DISPATCH(PermuteDgradRows)); }
void unpermute(const KernelCall& call) { tokens(call, call.in[2], 1, HWY_DYNAMIC_DISPATCH(UnpermuteRows)); }
void unpermute_dgrad(const KernelCall& call) {
  clear_others(call.in[3], call.out[0]);
  tokens(call, call.in[3], 2, HWY_DYNAMIC_DISPATCH(UnpermuteDgradRows));
}
void weigh_dgrad(const KernelCall& call) {
  over_rows(call, call.in[1].dim(0), 3 * call.in[1].columns() * size_of(call.in[1].dtype),
            HWY_DYNAMIC_DISPATCH(WeighDgradRows));
}

void zero_experts(const KernelCall& call) {
  over_rows(call, call.in[0].dim(0), 2 * call.in[0].columns() * size_of(call.in[0].dtype),
            HWY_DYNAMIC_DISPATCH(ZeroExpertsRows));
}
void zero_experts_dgrad(const KernelCall& call) {
  over_rows(call, call.in[0].dim(0), 3 * call.in[0].columns() * size_of(call.in[0].dtype),
            HWY_DYNAMIC_DISPATCH(ZeroExpertsDgradRows));
}

}  // namespace

std::vector<KernelEntry> permute_kernels() {
  return {{"permute", "host", "highway", takes<"xiii">, nullptr, permute},
          {"permute_dgrad", "host", "highway", takes<"xii">, nullptr, permute_dgrad},
          {"unpermute", "host", "highway", takes<"xaiix">, nullptr, unpermute},
          {"unpermute_dgrad", "host", "highway", takes<"xxai">, nullptr, unpermute_dgrad},
          {"weigh_dgrad", "host", "highway", takes<"xxa">, nullptr, weigh_dgrad},
          {"zero_experts", "host", "highway", takes<"xai">, nullptr, zero_experts},
          {"zero_experts_dgrad", "host", "highway", takes<"xxai">, nullptr, zero_experts_dgrad}};
}

}  // namespace heddle::kernels::host
#endif  // HWY_ONCE
