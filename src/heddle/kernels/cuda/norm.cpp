// Entries of the norms.
#include "heddle/kernels/cuda/backend.h"
#include "heddle/kernels/cuda/norm_kernels.h"

namespace heddle::kernels::cuda {

namespace {

template <size_t gain>
Support fits(const ir::Listing& listing, const ir::Op& op) {
  if (const Support types = narrow<Among::in, 0>(listing, op); !types) return types;
  const int64_t H = listing.value(op.in[gain]).shape[0].count;
  if (H <= kWidestNorm) return Support::yes();
  return Support::no(fmt::format("rows of {} numbers, at most {} stay in registers", H, kWidestNorm));
}

void norm(const KernelCall& call, bool added) {
  const size_t i = added ? 1 : 0;
  const TensorView& y = call.out[i];
  by_type(y.dtype, [&]<class X>(X) {
    NormArgs args{};
    args.a_TH = numbers<const X>(call.in[0]);
    if (added) {
      args.b_TH = numbers<const X>(call.in[1]);
      args.s_TH = numbers<X>(call.out[0]);
    }
    args.g_H = numbers<const float>(call.in[1 + i]);
    args.y_TH = numbers<X>(y);
    args.rstd_T = numbers<float>(call.out[1 + i]);
    args.H = call.in[1 + i].elements();
    args.T = y.elements() / args.H;
    args.epsilon = static_cast<float>(call.op->attributes.number("epsilon"));
    args.offset = static_cast<float>(call.op->attributes.number_or("offset", 0));
    launch(rms_norm<X>, {.blocks_x = args.T, .threads = kNormThreads}, args, call.stream);
  });
}

void norm_dgrad(const KernelCall& call) {
  const TensorView& dx = call.out[0];
  by_type(dx.dtype, [&]<class X>(X) {
    NormGradArgs args{};
    args.dy_TH = numbers<const X>(call.in[0]);
    args.x_TH = numbers<const X>(call.in[1]);
    args.g_H = numbers<const float>(call.in[2]);
    args.rstd_T = numbers<const float>(call.in[3]);
    args.dres_TH = numbers<const X>(operand(call.in, 4));
    args.dx_TH = numbers<X>(dx);
    args.dg_parts = reinterpret_cast<float*>(call.scratch);
    args.H = call.in[2].elements();
    args.T = dx.elements() / args.H;
    args.offset = static_cast<float>(call.op->attributes.number_or("offset", 0));
    const int64_t parts = blocks_for(args.T, kNormGradRows);
    launch(rms_norm_dgrad<X>, {.blocks_x = parts, .threads = kNormThreads}, args, call.stream);
    add_column_parts(args.dg_parts, parts, args.H, numbers<float>(call.out[1]), false, call.stream);
  });
}

int64_t dgrad_scratch(const ir::Listing& listing, const ir::Op& op, const ir::RowCounts& rows) {
  const int64_t H = listing.value(op.in[2]).shape[0].count;
  return blocks_for(listing.elements(op.in[3], rows), kNormGradRows) * H * 4;
}

}  // namespace

std::vector<KernelEntry> norm_entries() {
  return {entry(
              "rms_norm", "registers", [](const KernelCall& call) { norm(call, false); }, fits<1>),
          entry(
              "add_rms_norm", "registers", [](const KernelCall& call) { norm(call, true); }, fits<2>),
          entry("rms_norm_dgrad", "registers", norm_dgrad, fits<2>, dgrad_scratch)};
}

}  // namespace heddle::kernels::cuda
