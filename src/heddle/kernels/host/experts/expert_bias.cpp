// Biases of experts: added to rows sorted by expert, or gated to the tokens' sums of rows, and their gradients.
// T tokens, k experts a token, E experts; R rows, those of expert e from offsets[e] to offsets[e + 1]; N, H
// columns.
//   add_expert_bias  y_r = x_r + b_e               its gradient  acc_e += Σ dy_r over the rows of e
//   gated_bias       y_t = Σ_j g[t,j]·b of expert j  its gradients  dg[t,j] = dy_t·b, acc_e += Σ g·dy_t
// Sums over rows and tokens are in their order, a block of columns at a time: the bits are the same for any number
// of threads.
#include "heddle/kernels/host/simd_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "heddle/kernels/host/experts/expert_bias.cpp"
#include "heddle/kernels/host/experts/expert_of_row.h"
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
void add_expert_bias(const KernelCall& call, int64_t begin, int64_t end) {
  const int64_t N = call.in[0].columns();
  ExpertOfRow expert(call, 1);
  for (int64_t r = begin; r < end; ++r) {
    const X* x_N = call.in[0].as<const X>() + r * N;
    const float* bias_N = expert.bias(r);
    X* y_N = call.out[0].as<X>() + r * N;
    sweep(N, [&](int64_t n, auto lanes, auto)
                 HEDDLE_BODY { store(hn::Add(load(x_N + n, lanes), load(bias_N + n, lanes)), y_N + n, lanes); });
  }
}

HWY_INLINE void clear(float* sum, int64_t columns) {
  sweep(columns, [&](int64_t n, auto lanes, auto) HEDDLE_BODY { store(zero(), sum + n, lanes); });
}
/// acc = sum, or acc + sum.
HWY_INLINE void keep(const float* sum, int64_t columns, bool overwrite, float* acc) {
  sweep(columns, [&](int64_t n, auto lanes, auto) HEDDLE_BODY {
    const V v = load(sum + n, lanes);
    store(overwrite ? v : hn::Add(load(acc + n, lanes), v), acc + n, lanes);
  });
}

/// Blocks `begin` to `end` of the columns of all experts, those of an expert side by side.
template <class X>
void add_expert_bias_wgrad(const KernelCall& call, int64_t begin, int64_t end) {
  const int64_t N = call.in[0].columns(), blocks = column_blocks(N);
  const auto* offsets = call.in[1].as<const int32_t>();
  HWY_ALIGN float sum[kColumnBlock];
  for (int64_t piece = begin; piece < end; ++piece) {
    const int64_t e = piece / blocks, first = piece % blocks * kColumnBlock;
    const int64_t columns = std::min(kColumnBlock, N - first);
    clear(sum, columns);
    for (int64_t r = offsets[e]; r < offsets[e + 1]; ++r) {
      const X* dy = call.in[0].as<const X>() + r * N + first;
      sweep(columns, [&](int64_t n, auto lanes, auto) HEDDLE_BODY {
        store(hn::Add(load(sum + n, lanes), load(dy + n, lanes)), sum + n, lanes);
      });
    }
    const int64_t own = call.updates[0].rows();
    float* acc = e < own ? call.updates[0].as<float>() + e * N : call.out[0].as<float>() + (e - own) * N;
    keep(sum, columns, call.overwrite || e >= own, acc + first);
  }
}

template <class X>
void gated_bias(const KernelCall& call, int64_t begin, int64_t end) {
  const int64_t k = call.in[0].columns(), H = call.out[0].columns();
  const auto* experts_Tk = call.in[1].as<const int32_t>();
  const auto* bias_EH = call.in[2].as<const float>();
  for (int64_t t = begin; t < end; ++t) {
    const float* g_k = call.in[0].as<const float>() + t * k;
    X* y_H = call.out[0].as<X>() + t * H;
    sweep(H, [&](int64_t h, auto lanes, auto) HEDDLE_BODY {
      V sum = zero();
      for (int64_t j = 0; j < k; ++j)
        sum = hn::MulAdd(set(g_k[j]), load(bias_EH + experts_Tk[t * k + j] * H + h, lanes), sum);
      store(sum, y_H + h, lanes);
    });
  }
}

template <class X>
void gated_bias_dgrad(const KernelCall& call, int64_t begin, int64_t end) {
  const int64_t k = call.in[1].columns(), H = call.in[0].columns();
  const auto* experts_Tk = call.in[1].as<const int32_t>();
  for (int64_t i = begin * k; i < end * k; ++i) {
    const X* dy_H = call.in[0].as<const X>() + i / k * H;
    const float* bias_H = call.in[2].as<const float>() + experts_Tk[i] * H;
    Sum dot;
    sweep(H, [&](int64_t h, auto lanes, auto nth)
                 HEDDLE_BODY { dot.add_product(load(dy_H + h, lanes), load(bias_H + h, lanes), nth); });
    call.out[0].as<float>()[i] = dot.total();
  }
}

/// Blocks `begin` to `end` of the columns, of all experts.
template <class X>
void gated_bias_wgrad(const KernelCall& call, int64_t begin, int64_t end) {
  const int64_t H = call.in[0].columns(), k = call.in[2].columns(), T = call.in[2].rows();
  const auto* experts_Tk = call.in[2].as<const int32_t>();
  const auto* g_Tk = call.in[1].as<const float>();
  auto* acc_EH = call.updates[0].as<float>();
  for (int64_t block = begin; block < end; ++block) {
    const int64_t first = block * kColumnBlock, columns = std::min(kColumnBlock, H - first);
    if (call.overwrite) {
      for (int64_t e = 0; e < call.updates[0].rows(); ++e) clear(acc_EH + e * H + first, columns);
    }
    for (int64_t i = 0; i < T * k; ++i) {
      const X* dy = call.in[0].as<const X>() + i / k * H + first;
      float* acc = acc_EH + experts_Tk[i] * H + first;
      const V g = set(g_Tk[i]);
      sweep(columns, [&](int64_t h, auto lanes, auto) HEDDLE_BODY {
        store(hn::MulAdd(g, load(dy + h, lanes), load(acc + h, lanes)), acc + h, lanes);
      });
    }
  }
}

template <auto narrow, auto wide>
HWY_INLINE void by_type(Dtype dtype, const KernelCall& call, int64_t begin, int64_t end) {
  dtype == Dtype::bf16 ? narrow(call, begin, end) : wide(call, begin, end);
}
}  // namespace

void AddExpertBias(const KernelCall& call, int64_t begin, int64_t end) {
  by_type<add_expert_bias<bf16>, add_expert_bias<float>>(call.in[0].dtype, call, begin, end);
}
void AddExpertBiasWgrad(const KernelCall& call, int64_t begin, int64_t end) {
  by_type<add_expert_bias_wgrad<bf16>, add_expert_bias_wgrad<float>>(call.in[0].dtype, call, begin, end);
}
void GatedBias(const KernelCall& call, int64_t begin, int64_t end) {
  by_type<gated_bias<bf16>, gated_bias<float>>(call.out[0].dtype, call, begin, end);
}
void GatedBiasDgrad(const KernelCall& call, int64_t begin, int64_t end) {
  by_type<gated_bias_dgrad<bf16>, gated_bias_dgrad<float>>(call.in[0].dtype, call, begin, end);
}
void GatedBiasWgrad(const KernelCall& call, int64_t begin, int64_t end) {
  by_type<gated_bias_wgrad<bf16>, gated_bias_wgrad<float>>(call.in[0].dtype, call, begin, end);
}

}  // namespace heddle::kernels::host::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heddle::kernels::host {
namespace {
using device::KernelCall;
HWY_EXPORT(AddExpertBias);
HWY_EXPORT(AddExpertBiasWgrad);
HWY_EXPORT(GatedBias);
HWY_EXPORT(GatedBiasDgrad);
HWY_EXPORT(GatedBiasWgrad);

/// `bytes` of all pieces together.
void pieces(const KernelCall& call, int64_t count, int64_t bytes, RowKernel piece) {
  over_rows(call, count, bytes / std::max<int64_t>(1, count), piece);
}
int64_t bytes_of(const device::TensorView& view) { return view.elements() * size_of(view.dtype); }

void add_expert_bias(const KernelCall& call) {
  pieces(call, call.in[0].rows(), 2 * bytes_of(call.in[0]), HWY_DYNAMIC_DISPATCH(AddExpertBias));
}
void add_expert_bias_wgrad(const KernelCall& call) {
  pieces(call, (call.in[1].elements() - 1) * column_blocks(call.in[0].columns()), bytes_of(call.in[0]),
         HWY_DYNAMIC_DISPATCH(AddExpertBiasWgrad));
}
void gated_bias(const KernelCall& call) {
  pieces(call, call.in[0].rows(), bytes_of(call.out[0]) * (1 + 2 * call.in[0].columns()),
         HWY_DYNAMIC_DISPATCH(GatedBias));
}
void gated_bias_dgrad(const KernelCall& call) {
  pieces(call, call.in[0].rows(), bytes_of(call.in[0]) * (1 + 2 * call.in[1].columns()),
         HWY_DYNAMIC_DISPATCH(GatedBiasDgrad));
}
void gated_bias_wgrad(const KernelCall& call) {
  pieces(call, column_blocks(call.in[0].columns()), bytes_of(call.in[0]) * (1 + 4 * call.in[2].columns()),
         HWY_DYNAMIC_DISPATCH(GatedBiasWgrad));
}

}  // namespace

std::vector<KernelEntry> expert_bias_kernels() {
  return {{"add_expert_bias", "host", "highway", takes<"xai">, nullptr, add_expert_bias},
          {"add_expert_bias_wgrad", "host", "highway", takes<"xi", "a">, nullptr, add_expert_bias_wgrad},
          {"gated_bias", "host", "highway", takes<"aia">, nullptr, gated_bias},
          {"gated_bias_dgrad", "host", "highway", takes<"xia">, nullptr, gated_bias_dgrad},
          {"gated_bias_wgrad", "host", "highway", takes<"xai", "a">, nullptr, gated_bias_wgrad}};
}

}  // namespace heddle::kernels::host
#endif  // HWY_ONCE
