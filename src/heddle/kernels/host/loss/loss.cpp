// Cross entropy over a vocabulary, from stored logits. T tokens, V vocabulary.
//   lse = ln Σ e^logits, loss = Σ_{labels ≥ 0} w·(lse − logits[label]) and z = Σ_{labels ≥ 0} w·lse² in f64,
//   dlogits = scale·w·((1 + 2·z_weight·lse)·softmax − onehot)
// A row is read twice, the second time from the cache. Both sums are made by blocks of kRowsPerPartial rows.
#include "heddle/kernels/host/simd_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "heddle/kernels/host/loss/loss.cpp"
#include "heddle/kernels/host/host.h"
#include "heddle/kernels/host/row_pieces.h"
#include "heddle/kernels/logit_z.h"
#include "hwy/foreach_target.h"
// The order matters: these are compiled for each target.
#include "heddle/kernels/host/loss/loss_rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heddle::kernels::host::HWY_NAMESPACE {
namespace {
using device::KernelCall;

double weight_of(const KernelCall& call, size_t operand, int64_t t) {
  const bool given = operand < call.in.size() && call.in[operand];
  return given ? call.in[operand].as<const double>()[t] : 1;
}

template <class X>
void loss_rows(const KernelCall& call, int64_t begin, int64_t end) {
  const int64_t V_ = call.in[0].columns();
  auto* partials = reinterpret_cast<double*>(call.scratch);  // of the loss, then of z
  double* const z_partials = call.out.size() > 2 ? partials + partial_count(call.in[0].rows()) : nullptr;
  for (int64_t t = begin; t < end; ++t) {
    const X* logits_V = call.in[0].as<const X>() + t * V_;
    const float lse = log_sum_exp(logits_V, V_);
    call.out[1].as<float>()[t] = lse;
    const int32_t label = call.in[1].as<const int32_t>()[t];
    const double weight = weight_of(call, 3, t);
    const int64_t at = t / kRowsPerPartial;
    if (t % kRowsPerPartial == 0) partials[at] = 0;
    partials[at] += weight * row_loss(logits_V, label, lse);
    if (z_partials == nullptr) continue;
    if (t % kRowsPerPartial == 0) z_partials[at] = 0;
    if (label >= 0) z_partials[at] += weight * static_cast<double>(lse) * static_cast<double>(lse);
  }
}

template <class X>
void token_loss_rows(const KernelCall& call, int64_t begin, int64_t end) {
  const int64_t V_ = call.in[0].columns();
  for (int64_t t = begin; t < end; ++t) {
    const X* logits_V = call.in[0].as<const X>() + t * V_;
    const float lse = log_sum_exp(logits_V, V_);
    call.out[1].as<float>()[t] = lse;
    call.out[0].as<double>()[t] = row_loss(logits_V, call.in[1].as<const int32_t>()[t], lse);
  }
}

template <class X>
void dgrad_rows(const KernelCall& call, int64_t begin, int64_t end) {
  const int64_t V_ = call.in[0].columns();
  const bool scaled = call.in.size() > 3 && call.in[3];
  const float scale = scaled ? call.in[3].as<const float>()[call.op->attributes.integer("scale_index")] : 1.0f;
  const auto z_weight = static_cast<float>(call.op->attributes.number_or("z_weight", 0));
  for (int64_t t = begin; t < end; ++t) {
    const float lse = call.in[2].as<const float>()[t], slope = z_slope(z_weight, lse);
    row_dlogits(call.in[0].as<const X>() + t * V_, call.in[1].as<const int32_t>()[t], V_, lse,
                scale * static_cast<float>(weight_of(call, 4, t)) * slope, 1 / slope, call.out[0].as<X>() + t * V_);
  }
}
}  // namespace

void LossRows(const KernelCall& call, int64_t begin, int64_t end) {
  call.in[0].dtype == Dtype::bf16 ? loss_rows<bf16>(call, begin, end) : loss_rows<float>(call, begin, end);
}
void TokenLossRows(const KernelCall& call, int64_t begin, int64_t end) {
  call.in[0].dtype == Dtype::bf16 ? token_loss_rows<bf16>(call, begin, end)
                                  : token_loss_rows<float>(call, begin, end);
}
void LossDgradRows(const KernelCall& call, int64_t begin, int64_t end) {
  call.in[0].dtype == Dtype::bf16 ? dgrad_rows<bf16>(call, begin, end) : dgrad_rows<float>(call, begin, end);
}

}  // namespace heddle::kernels::host::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heddle::kernels::host {

void check_labels(const int32_t* labels_T, int64_t T, int64_t most_label) {
  int32_t most = -1;
  for (int64_t t = 0; t < T; ++t) most = std::max(most, labels_T[t]);
  HEDDLE_CHECK(most <= most_label, "label {} in a vocabulary of {}", most, most_label + 1);
}

namespace {
using device::KernelCall;
HWY_EXPORT(LossRows);
HWY_EXPORT(TokenLossRows);
HWY_EXPORT(LossDgradRows);

void cross_entropy(const KernelCall& call) {
  const int64_t T = call.in[0].rows(), V = call.in[0].columns();
  check_labels(call.in[1].as<const int32_t>(), T, V - 1);
  over_rows(call, T, V * size_of(call.in[0].dtype), HWY_DYNAMIC_DISPATCH(LossRows), kRowsPerPartial);
  const auto* partials = reinterpret_cast<const double*>(call.scratch);
  const auto sum_to = [&](const device::TensorView& to, const double* parts) {
    double sum = 0;
    for (int64_t p = 0; p < partial_count(T); ++p) sum += parts[p];
    to.as<double>()[0] = sum;
  };
  sum_to(call.out[0], partials);
  if (call.out.size() > 2) sum_to(call.out[2], partials + partial_count(T));
}

int64_t loss_scratch(const ir::Listing& listing, const ir::Op& op, const ir::RowCounts& rows) {
  return partial_count(listing.elements(op.in[1], rows)) * (op.attributes.has("z_weight") ? 16 : 8);
}

void token_losses(const KernelCall& call) {
  const int64_t T = call.in[0].rows(), V = call.in[0].columns();
  check_labels(call.in[1].as<const int32_t>(), T, V - 1);
  over_rows(call, T, V * size_of(call.in[0].dtype), HWY_DYNAMIC_DISPATCH(TokenLossRows));
}

void cross_entropy_dgrad(const KernelCall& call) {
  const int64_t T = call.in[0].rows(), V = call.in[0].columns();
  check_labels(call.in[1].as<const int32_t>(), T, V);  // V: another part has it
  over_rows(call, T, 2 * V * size_of(call.in[0].dtype), HWY_DYNAMIC_DISPATCH(LossDgradRows));
}

}  // namespace

std::vector<KernelEntry> loss_kernels() {
  return {{"cross_entropy_part", "host", "highway", takes<"xiad">, loss_scratch, cross_entropy},
          {"cross_entropy", "host", "highway", takes<"xiad">, loss_scratch, cross_entropy},
          {"token_losses", "host", "highway", takes<"xi">, nullptr, token_losses},
          {"token_losses_part", "host", "highway", takes<"xi">, nullptr, token_losses},
          {"cross_entropy_dgrad", "host", "highway", takes<"xiaad">, nullptr, cross_entropy_dgrad}};
}

}  // namespace heddle::kernels::host
#endif  // HWY_ONCE
