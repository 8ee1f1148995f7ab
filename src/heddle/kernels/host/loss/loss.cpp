// Cross entropy over a vocabulary, from stored logits. T tokens, V vocabulary.
//   lse = ln Σ e^logits, loss = Σ_{labels ≥ 0} lse − logits[label] in f64, dlogits = scale·(softmax − onehot)
// A row is read twice, the second time from the cache. The loss is summed by blocks of kRowsPerPartial rows.
#include "heddle/kernels/host/simd_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "heddle/kernels/host/loss/loss.cpp"
#include "heddle/kernels/host/host.h"
#include "heddle/kernels/host/row_pieces.h"
#include "hwy/foreach_target.h"
// The order matters: these are compiled for each target.
#include "heddle/kernels/host/loss/loss_rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heddle::kernels::host::HWY_NAMESPACE {
namespace {
using device::KernelCall;

template <class X>
void loss_rows(const KernelCall& call, int64_t begin, int64_t end) {
  const int64_t V_ = call.in[0].columns();
  auto* partials = reinterpret_cast<double*>(call.scratch);
  for (int64_t t = begin; t < end; ++t) {
    const X* logits_V = call.in[0].as<const X>() + t * V_;
    const float lse = log_sum_exp(logits_V, V_);
    call.out[1].as<float>()[t] = lse;
    double& partial = partials[t / kRowsPerPartial];
    if (t % kRowsPerPartial == 0) partial = 0;
    partial += row_loss(logits_V, call.in[1].as<const int32_t>()[t], lse);
  }
}

template <class X>
void dgrad_rows(const KernelCall& call, int64_t begin, int64_t end) {
  const int64_t V_ = call.in[0].columns();
  const float scale = call.in[3].as<const float>()[call.op->attributes.integer("scale_index")];
  for (int64_t t = begin; t < end; ++t) {
    row_dlogits(call.in[0].as<const X>() + t * V_, call.in[1].as<const int32_t>()[t], V_,
                call.in[2].as<const float>()[t], scale, call.out[0].as<X>() + t * V_);
  }
}
}  // namespace

void LossRows(const KernelCall& call, int64_t begin, int64_t end) {
  call.in[0].dtype == Dtype::bf16 ? loss_rows<bf16>(call, begin, end) : loss_rows<float>(call, begin, end);
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
HWY_EXPORT(LossDgradRows);

void cross_entropy(const KernelCall& call) {
  const int64_t T = call.in[0].rows(), V = call.in[0].columns();
  check_labels(call.in[1].as<const int32_t>(), T, V - 1);
  over_rows(
      T, V * size_of(call.in[0].dtype),
      [&](int64_t begin, int64_t end) {
        HWY_DYNAMIC_DISPATCH(LossRows)
        (call, begin, end);
      },
      kRowsPerPartial);
  const auto* partials = reinterpret_cast<const double*>(call.scratch);
  double loss = 0;
  for (int64_t p = 0; p < partial_count(T); ++p) loss += partials[p];
  call.out[0].as<double>()[0] = loss;
}

int64_t loss_scratch(const ir::Listing& listing, const ir::Op& op, const ir::RowCounts& rows) {
  return partial_count(listing.elements(op.in[1], rows)) * 8;
}

void cross_entropy_dgrad(const KernelCall& call) {
  const int64_t T = call.in[0].rows(), V = call.in[0].columns();
  check_labels(call.in[1].as<const int32_t>(), T, V);  // V: another part has it
  over_rows(T, 2 * V * size_of(call.in[0].dtype), [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(LossDgradRows)(call, begin, end);
  });
}

}  // namespace

std::vector<KernelEntry> loss_kernels() {
  return {{"cross_entropy_part", "host", "highway", takes<"xia">, loss_scratch, cross_entropy},
          {"cross_entropy", "host", "highway", takes<"xia">, loss_scratch, cross_entropy},
          {"cross_entropy_dgrad", "host", "highway", takes<"xiaa">, nullptr, cross_entropy_dgrad}};
}

}  // namespace heddle::kernels::host
#endif  // HWY_ONCE
