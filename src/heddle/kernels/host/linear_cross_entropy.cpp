// linear_cross_entropy and its gradients: the output projection and the loss over blocks of rows, so that T×V is
// never held. T tokens, V vocabulary, H hidden; a block has B rows.
//
// A block's logits are fp32; dlogits = scale·(softmax − onehot) overwrites them, rounded to the type of x (bf16 lies in
// the first half of each row). The products are those of gemm.h. B is as large as kBlockBytes allows, for each
// block adds to the whole dw once.
#include "heddle/kernels/host/simd_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "heddle/kernels/host/linear_cross_entropy.cpp"
#include "heddle/kernels/host/host.h"
#include "heddle/kernels/host/linear_operands.h"
#include "heddle/kernels/host/row_pieces.h"
#include "hwy/foreach_target.h"
// Compiled for each target.
#include "heddle/kernels/host/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heddle::kernels::host::HWY_NAMESPACE {
namespace {

/// log Σ e^logit of one row: the largest first, then the sum.
float LogSumExp(const float* logits_V, int64_t V_) {
  V most[4] = {set(-3.4e38f), set(-3.4e38f), set(-3.4e38f), set(-3.4e38f)};
  sweep(V_, [&](int64_t v, auto lanes, auto nth) HEDDLE_BODY {
    most[nth] = hn::Max(most[nth], or_else(load(logits_V + v, lanes), most[nth], lanes));
  });
  const V all = hn::MaxOfLanes(Floats(), hn::Max(hn::Max(most[0], most[1]), hn::Max(most[2], most[3])));
  Sum sum;
  sweep(V_, [&](int64_t v, auto lanes, auto nth) HEDDLE_BODY {
    sum.add(or_else(exp(hn::Sub(load(logits_V + v, lanes), all)), zero(), lanes), nth);
  });
  return hn::GetLane(all) + std::log(sum.total());
}

/// scale·softmax over the row, in place, rounded to X; the label's element is the caller's to mend.
template <class X>
void gradient(float* logits_V, int64_t V_, float lse, float scale) {
  X* out_V = reinterpret_cast<X*>(logits_V);
  const V shift = set(lse), factor = set(scale);
  sweep(V_, [&](int64_t v, auto lanes, auto) HEDDLE_BODY {
    store(hn::Mul(factor, exp(hn::Sub(load(logits_V + v, lanes), shift))), out_V + v, lanes);
  });
}
void GradientBf16(float* logits_V, int64_t V_, float lse, float scale) { gradient<bf16>(logits_V, V_, lse, scale); }
void GradientF32(float* logits_V, int64_t V_, float lse, float scale) { gradient<float>(logits_V, V_, lse, scale); }

}  // namespace
}  // namespace heddle::kernels::host::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <cmath>

namespace heddle::kernels::host {
namespace {

using device::KernelCall;
using device::TensorView;

HWY_EXPORT(LogSumExp);
HWY_EXPORT(GradientBf16);
HWY_EXPORT(GradientF32);

constexpr int64_t kBlockBytes = 48 << 20;

int64_t block_rows(int64_t rows, int64_t vocabulary) {
  const int64_t most = std::clamp<int64_t>(kBlockBytes / (4 * vocabulary), 256, 4096);
  const int64_t blocks = std::max<int64_t>(1, (rows + most - 1) / most);
  return ((rows + blocks - 1) / blocks + 15) / 16 * 16;  // blocks of like size
}

int64_t block_bytes(int64_t rows, int64_t vocabulary) {
  return (block_rows(rows, vocabulary) * vocabulary * 4 + 63) / 64 * 64;
}

// Scratch: the logits of a block, a double a row for the losses, then the products'.
int64_t scratch_bytes(const ir::Stage& stage, const ir::Op& op, const ir::RowCounts& rows) {
  const int64_t T = stage.elements(op.in[2], rows), vocabulary = stage.value(op.in[1]).shape[0].count;
  return block_bytes(T, vocabulary) + (T * 8 + 63) / 64 * 64 + product_scratch_bytes(1);
}

// One call's operands; absent outputs are null.
struct Sweep {
  TensorView x_TH, w_VH, labels_T, scales;
  const float* lse_T = nullptr;  // given, when the forward pass has made it
  float* lse_out_T = nullptr;
  double* loss = nullptr;
  TensorView dx_TH;
  float* dw_VH = nullptr;
};

void run(const KernelCall& call, const Sweep& s) {
  const int64_t T = s.x_TH.dim(0), H = s.x_TH.dim(1), vocabulary = s.w_VH.dim(0), B = block_rows(T, vocabulary);
  const bool narrow = s.x_TH.dtype == Dtype::bf16, backward = s.dx_TH.data != nullptr || s.dw_VH != nullptr;
  auto* logits_BV = reinterpret_cast<float*>(call.scratch);
  auto* losses_T = reinterpret_cast<double*>(call.scratch + block_bytes(T, vocabulary));
  std::byte* rest = call.scratch + block_bytes(T, vocabulary) + (T * 8 + 63) / 64 * 64;
  const Scratch scratch{rest, product_scratch_bytes(1)};
  const auto* labels_T = s.labels_T.as<const int32_t>();
  const float scale = backward ? s.scales.as<const float>()[call.op->attributes.integer("scale_index")] : 0;
  const auto log_sum_exp = HWY_DYNAMIC_DISPATCH(LogSumExp);
  const auto gradient = narrow ? HWY_DYNAMIC_DISPATCH(GradientBf16) : HWY_DYNAMIC_DISPATCH(GradientF32);
  if (T == 0 && s.dw_VH != nullptr && call.overwrite) std::fill_n(s.dw_VH, vocabulary * H, 0.0f);

  for (int64_t first = 0; first < T; first += B) {
    const int64_t rows = std::min(B, T - first);
    const auto* x = static_cast<const std::byte*>(s.x_TH.data) + first * H * size_of(s.x_TH.dtype);
    linear_forward({.groups = RowGroups::one(rows),
                    .n = vocabulary,
                    .k = H,
                    .x = {x, s.x_TH.dtype},
                    .w = weights_of(s.w_VH),
                    .y = {logits_BV, Dtype::f32},
                    .scratch = scratch});
    over_rows(rows, vocabulary * 8, [&](int64_t begin, int64_t end) {
      for (int64_t b = begin; b < end; ++b) {
        float* row_V = logits_BV + b * vocabulary;
        const int64_t t = first + b;
        const int32_t label = labels_T[t];
        const float lse = s.lse_T != nullptr ? s.lse_T[t] : log_sum_exp(row_V, vocabulary);
        if (s.lse_out_T != nullptr) s.lse_out_T[t] = lse;
        losses_T[t] = label >= 0 ? static_cast<double>(lse) - static_cast<double>(row_V[label]) : 0.0;
        if (!backward) continue;
        const float at_label = label >= 0 ? scale * (std::exp(row_V[label] - lse) - 1.0f) : 0;
        gradient(row_V, vocabulary, lse, label >= 0 ? scale : 0.0f);
        if (label < 0) continue;
        if (narrow) {
          reinterpret_cast<bf16*>(row_V)[label] = bf16(at_label);
        } else {
          row_V[label] = at_label;
        }
      }
    });
    const Rows dlogits{logits_BV, s.x_TH.dtype, narrow ? 2 * vocabulary : vocabulary};
    if (s.dx_TH.data != nullptr) {
      linear_dgrad({.groups = RowGroups::one(rows),
                    .n = vocabulary,
                    .k = H,
                    .dy = dlogits,
                    .w = weights_of(s.w_VH),
                    .dx = {s.dx_TH.as<std::byte>() + first * H * size_of(s.dx_TH.dtype), s.dx_TH.dtype},
                    .scratch = scratch});
    }
    if (s.dw_VH != nullptr) {
      linear_wgrad({.groups = RowGroups::one(rows),
                    .n = vocabulary,
                    .k = H,
                    .dy = dlogits,
                    .x = {x, s.x_TH.dtype},
                    .dw = s.dw_VH,
                    .overwrite = call.overwrite && first == 0,
                    .scratch = scratch});
    }
  }
  if (s.loss != nullptr) {
    *s.loss = 0;
    for (int64_t t = 0; t < T; ++t) *s.loss += losses_T[t];
  }
}

void forward(const KernelCall& call) {
  run(call, {.x_TH = call.in[0],
             .w_VH = call.in[1],
             .labels_T = call.in[2],
             .lse_out_T = call.out[1].as<float>(),
             .loss = call.out[0].as<double>()});
}
void dgrad(const KernelCall& call) {
  run(call, {.x_TH = call.in[0],
             .w_VH = call.in[1],
             .labels_T = call.in[2],
             .scales = call.in[4],
             .lse_T = call.in[3].as<const float>(),
             .dx_TH = call.out[0]});
}
void wgrad(const KernelCall& call) {
  run(call, {.x_TH = call.in[0],
             .w_VH = call.in[1],
             .labels_T = call.in[2],
             .scales = call.in[4],
             .lse_T = call.in[3].as<const float>(),
             .dw_VH = call.updates[0].as<float>()});
}
void train(const KernelCall& call) {
  run(call, {.x_TH = call.in[0],
             .w_VH = call.in[1],
             .labels_T = call.in[2],
             .scales = call.in[3],
             .loss = call.out[0].as<double>(),
             .dx_TH = call.out[1],
             .dw_VH = call.updates[0].as<float>()});
}

Support supports(const ir::Stage& stage, const ir::Op& op) {
  for (const ir::ValueId id : op.updates) {
    if (stage.value(id).dtype != Dtype::f32) return Support::no("the accumulator is not f32");
  }
  return product_support(stage, op.in[0], op.in[1], ir::none);
}

}  // namespace

std::vector<KernelEntry> linear_cross_entropy_kernels() {
  return {{"linear_cross_entropy", "host", "gemm", supports, scratch_bytes, forward},
          {"linear_cross_entropy_dgrad", "host", "gemm", supports, scratch_bytes, dgrad},
          {"linear_cross_entropy_wgrad", "host", "gemm", supports, scratch_bytes, wgrad},
          {"linear_cross_entropy_train", "host", "gemm", supports, scratch_bytes, train}};
}

}  // namespace heddle::kernels::host
#endif  // HWY_ONCE
