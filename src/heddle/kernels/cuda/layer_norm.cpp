// Entries of LayerNorm.
#include "heddle/kernels/cuda/backend.h"
#include "heddle/kernels/cuda/layer_norm_kernels.h"

namespace heddle::kernels::cuda {

namespace {

void norm(const KernelCall& call, bool added) {
  const size_t i = added ? 1 : 0;
  const TensorView& y = call.out[i];
  by_type(y.dtype, [&]<class X>(X) {
    LayerNormArgs args{};
    args.a_TH = numbers<const X>(call.in[0]);
    if (added) {
      args.b_TH = numbers<const X>(call.in[1]);
      args.s_TH = numbers<X>(call.out[0]);
    }
    args.g_H = numbers<const float>(call.in[1 + i]);
    args.bias_H = numbers<const float>(call.in[2 + i]);
    args.y_TH = numbers<X>(y);
    args.mean_T = numbers<float>(call.out[1 + i]);
    args.rstd_T = numbers<float>(call.out[2 + i]);
    args.T = y.rows();
    args.H = y.columns();
    args.epsilon = static_cast<float>(call.op->attributes.number("epsilon"));
    launch(layer_norm<X>, {.blocks_x = args.T, .threads = kLayerNormThreads}, args, call.stream);
  });
}

void norm_dgrad(const KernelCall& call) {
  const TensorView& dx = call.out[0];
  by_type(dx.dtype, [&]<class X>(X) {
    LayerNormGradArgs args{};
    args.dy_TH = numbers<const X>(call.in[0]);
    args.x_TH = numbers<const X>(call.in[1]);
    args.g_H = numbers<const float>(call.in[2]);
    args.mean_T = numbers<const float>(call.in[3]);
    args.rstd_T = numbers<const float>(call.in[4]);
    args.dres_TH = numbers<const X>(operand(call.in, 5));
    args.dx_TH = numbers<X>(dx);
    args.T = dx.rows();
    args.H = dx.columns();
    const int64_t parts = blocks_for(args.T, kLayerNormGradRows);
    args.dg_parts = reinterpret_cast<float*>(call.scratch);
    args.db_parts = args.dg_parts + parts * args.H;
    launch(layer_norm_dgrad<X>, {.blocks_x = args.T, .threads = kLayerNormThreads}, args, call.stream);
    launch(layer_norm_sums<X>,
           {.blocks_x = parts,
            .blocks_y = blocks_for(args.H, int64_t{kLayerNormThreads} * 8),
            .threads = kLayerNormThreads},
           args, call.stream);
    add_column_parts(args.dg_parts, parts, args.H, numbers<float>(call.out[1]), false, call.stream);
    add_column_parts(args.db_parts, parts, args.H, numbers<float>(call.out[2]), false, call.stream);
  });
}

int64_t dgrad_scratch(const ir::Listing& listing, const ir::Op& op, const ir::RowCounts& rows) {
  const int64_t H = listing.value(op.in[2]).shape[0].count;
  return 2 * blocks_for(listing.elements(op.in[3], rows), kLayerNormGradRows) * H * 4;
}

}  // namespace

std::vector<KernelEntry> layer_norm_entries() {
  return {entry("layer_norm", "rows", [](const KernelCall& call) { norm(call, false); }),
          entry("add_layer_norm", "rows", [](const KernelCall& call) { norm(call, true); }),
          entry("layer_norm_dgrad", "rows", norm_dgrad, narrow<Among::in, 0>, dgrad_scratch)};
}

}  // namespace heddle::kernels::cuda
