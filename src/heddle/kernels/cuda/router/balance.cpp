// Entries of the balance by quantiles.
#include "heddle/kernels/cuda/backend.h"
#include "heddle/kernels/cuda/router/balance_kernels.h"
#include "heddle/kernels/cuda/router/router_kernels.h"

namespace heddle::kernels::cuda {

namespace {

Support counts(const ir::Listing& listing, const ir::Op& op) {
  const ir::Value& scores = listing.value(op.in[0]);
  if (scores.dtype != Dtype::f32)
    return Support::no(fmt::format("scores in {}, wanted f32", name_of(scores.dtype)));
  if (scores.shape[1].count <= kMostExperts) return Support::yes();
  return Support::no(fmt::format("{} experts, at most {}", scores.shape[1].count, kMostExperts));
}

void count_margins_op(const KernelCall& call) {
  MarginArgs args{};
  args.s_TE = numbers<const float>(call.in[0]);
  args.bias_E = numbers<const float>(call.in[1]);
  args.middle_T = reinterpret_cast<float*>(call.scratch);
  args.margins = numbers<double>(call.updates[0]);
  args.T = call.in[0].dim(0);
  args.E = call.in[0].dim(1);
  args.k = static_cast<int32_t>(call.op->attributes.integer("top_k"));
  args.overwrite = call.overwrite;
  launch(middles_of_tokens,
         {.blocks_x = blocks_for(args.T, kRouterWarps),
          .threads = kRouterWarps * kWarp,
          .shared_bytes = router_shared_bytes(args.E)},
         args, call.stream);
  launch(count_margins, {.blocks_x = args.E, .threads = kMarginThreads}, args, call.stream);
}
int64_t middle_scratch(const ir::Listing& listing, const ir::Op& op, const ir::RowCounts& rows) {
  return MatrixSize(listing, op.in[0], rows).rows * 4;
}

Support moves(const ir::Listing& listing, const ir::Op& op) {
  const Dtype dtype = listing.value(op.updates[0]).dtype;
  return dtype == Dtype::f32 ? Support::yes()
                             : Support::no(fmt::format("a bias in {}, wanted f32", name_of(dtype)));
}

void quantile_bias_update_op(const KernelCall& call) {
  const int64_t E = call.updates[0].elements();
  launch(quantile_bias_update, {.threads = kMarginThreads},
         {numbers<const double>(call.in[0]), numbers<const double>(call.in[1]),
          reinterpret_cast<double*>(call.scratch), numbers<float>(call.updates[0]), E,
          static_cast<int32_t>(call.op->attributes.integer("top_k"))},
         call.stream);
}
int64_t quantile_scratch(const ir::Listing& listing, const ir::Op& op, const ir::RowCounts& rows) {
  return listing.elements(op.updates[0], rows) * 8;
}

}  // namespace

std::vector<KernelEntry> balance_entries() {
  return {entry("count_margins", "bin", count_margins_op, counts, middle_scratch),
          entry("quantile_bias_update", "block", quantile_bias_update_op, moves, quantile_scratch)};
}

}  // namespace heddle::kernels::cuda
