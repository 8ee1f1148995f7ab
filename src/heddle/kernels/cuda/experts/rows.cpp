// Entries of embedding and of the ways of rows to their experts and back.
#include "heddle/kernels/cuda/backend.h"
#include "heddle/kernels/cuda/experts/row_kernels.h"

namespace heddle::kernels::cuda {

namespace {

constexpr int64_t kGatherBlocks = 1 << 16;

void gather(const TensorView& from, const TensorView& index, const TensorView& to, void* stream) {
  by_type(to.dtype, [&]<class X>(X) {
    const int64_t R = index.elements(), H = from.columns();
    launch(gather_rows<X>, {.blocks_x = std::min(blocks_for(R, 256 / 32), kGatherBlocks)},
           {numbers<const X>(from), numbers<const int32_t>(index), numbers<X>(to), R, H, from.rows(), 1}, stream);
  });
}

void embedding(const KernelCall& call) { gather(call.in[1], call.in[0], call.out[0], call.stream); }
void permute(const KernelCall& call) { gather(call.in[0], call.in[2], call.out[0], call.stream); }

void embedding_dgrad(const KernelCall& call) {
  const TensorView& acc = call.updates[0];
  if (call.overwrite) fill_bytes(acc.data, 0, acc.elements() * 4, call.stream);
  by_type(call.in[0].dtype, [&]<class X>(X) {
    launch(embedding_wgrad<X>, {.blocks_x = call.in[1].elements()},
           {numbers<const X>(call.in[0]), numbers<const int32_t>(call.in[1]), numbers<float>(acc),
            call.in[1].elements(), acc.dim(0), acc.dim(1)},
           call.stream);
  });
}

Support sums_few(const ir::Listing& listing, const ir::Op& op) {
  if (const Support types = narrow<Among::in, 0>(listing, op); !types) return types;
  const int64_t k = listing.value(op.in[op.kind() == "unpermute" ? 2 : 1]).shape.back().count;
  if (k <= kMostLeaves) return Support::yes();
  return Support::no(fmt::format("{} experts a token, at most {} are summed", k, kMostLeaves));
}

/// permute_dgrad: dp, row_of, experts. unpermute: y, g, row_of, experts, residual?.
void sum_rows_of_tokens(const KernelCall& call) {
  const bool weighed = call.op->kind() == "unpermute";
  const size_t i = weighed ? 2 : 1;
  by_type(call.out[0].dtype, [&]<class X>(X) {
    TreeSumArgs args{};
    args.rows = numbers<const X>(call.in[0]);
    if (weighed) {
      args.g_Tk = numbers<const float>(call.in[1]);
      args.residual_TH = numbers<const X>(operand(call.in, 4));
    }
    args.row_of_Tk = numbers<const int32_t>(call.in[i]);
    args.experts_Tk = numbers<const int32_t>(call.in[i + 1]);
    args.to_TH = numbers<X>(call.out[0]);
    args.T = call.in[i].dim(0);
    args.k = call.in[i].dim(1);
    args.H = call.out[0].columns();
    const auto kernel = args.k <= kFewLeaves ? tree_sum<X, kFewLeaves> : tree_sum<X, kMostLeaves>;
    launch(kernel, {.blocks_x = args.T, .threads = 128}, args, call.stream);
  });
}

/// unpermute_dgrad: dc, y, g, row_of. weigh_dgrad: dr, e, g.
void weigh(const KernelCall& call) {
  const TensorView row_of = operand(call.in, 3);
  by_type(call.in[0].dtype, [&]<class X>(X) {
    WeighArgs args{};
    args.d_rows = numbers<const X>(call.in[0]);
    args.rows = numbers<const X>(call.in[1]);
    args.g = numbers<const float>(call.in[2]);
    args.row_of_Tk = numbers<const int32_t>(row_of);
    args.dy_RH = numbers<X>(call.out[0]);
    args.dg = numbers<float>(call.out[1]);
    args.taken_R = row_of ? reinterpret_cast<unsigned char*>(call.scratch) : nullptr;
    args.k = row_of ? row_of.dim(1) : 1;
    args.T = call.in[2].elements() / std::max<int64_t>(1, args.k);
    args.H = call.in[1].columns();
    const int64_t R = call.out[0].rows();
    if (row_of) fill_bytes(args.taken_R, 0, R, call.stream);
    launch(weigh_dgrad<X>, {.blocks_x = call.in[2].elements(), .threads = 128}, args, call.stream);
    if (row_of) {
      launch(clear_others<X>, {.blocks_x = blocks_for(R, kClearedRows)}, {args.taken_R, args.dy_RH, R, args.H},
             call.stream);
    }
  });
}
int64_t marks_of_rows(const ir::Listing& listing, const ir::Op& op, const ir::RowCounts& rows) {
  return MatrixSize(listing, op.in[1], rows).rows;
}

void ones(const KernelCall& call) {
  const int64_t count = call.out[0].elements();
  launch(unit_gates, {.blocks_x = blocks_for(count, 256), .threads = 256}, {numbers<float>(call.out[0]), count},
         call.stream);
}

/// x, gates, experts -> y; or dy before them -> dx, dgates.
template <bool gradient>
void without_computation(const KernelCall& call) {
  const size_t x = gradient ? 1 : 0;
  const TensorView& experts = call.in[x + 2];
  by_type(call.in[0].dtype, [&]<class X>(X) {
    ZeroExpertArgs args{};
    args.x_TH = numbers<const X>(call.in[x]);
    args.g_Tk = numbers<const float>(call.in[x + 1]);
    args.experts_Tk = numbers<const int32_t>(experts);
    args.to_TH = numbers<X>(call.out[0]);
    if (gradient) {
      args.dy_TH = numbers<const X>(call.in[0]);
      args.dg_Tk = numbers<float>(call.out[1]);
    }
    args.T = experts.dim(0);
    args.H = call.in[x].columns();
    args.k = experts.dim(1);
    args.first = static_cast<int32_t>(call.op->attributes.integer("first"));
    launch(zero_experts<X>, {.blocks_x = args.T, .threads = 128}, args, call.stream);
  });
}

}  // namespace

std::vector<KernelEntry> row_entries() {
  return {entry("embedding", "gather", embedding, narrow<Among::in, 1>),
          entry("embedding_wgrad", "first token", embedding_dgrad),
          entry("permute", "gather", permute),
          entry("permute_dgrad", "tree", sum_rows_of_tokens, sums_few),
          entry("unpermute", "tree", sum_rows_of_tokens, sums_few),
          entry("unpermute_dgrad", "slot", weigh, narrow<Among::in, 0>, marks_of_rows),
          entry("weigh_dgrad", "slot", weigh),
          entry("unit_gates", "plain", ones, narrow<Among::out, 0>),
          entry("zero_experts", "token", without_computation<false>),
          entry("zero_experts_dgrad", "token", without_computation<true>)};
}

}  // namespace heddle::kernels::cuda
