// Entries of the streams of the residual. T rows of n streams of H columns, W weights a token.
#include "heddle/kernels/cuda/backend.h"
#include "heddle/kernels/cuda/hyper_connection_kernels.h"

namespace heddle::kernels::cuda {

namespace {

/// `one`: of T rows of H columns.
StreamArgs stream_args(const KernelCall& call, const TensorView& one) {
  const ir::Attributes& attributes = call.op->attributes;
  StreamArgs args{};
  args.T = one.rows();
  args.H = one.columns();
  args.n = static_cast<int>(attributes.integer("streams"));
  args.iterations = static_cast<int>(attributes.integer_or("iterations", 1));
  args.magnitude = static_cast<float>(attributes.number_or("magnitude", 2));
  args.epsilon = static_cast<float>(attributes.number_or("epsilon", 0));
  args.norm_epsilon = static_cast<float>(attributes.number_or("norm_epsilon", 0));
  return args;
}

void set_stream_weights(StreamArgs& args, const KernelCall& call, size_t q) {
  args.q = numbers<const float>(call.in[q]);
  args.base = numbers<const float>(call.in[q + 1]);
  args.scale = numbers<const float>(call.in[q + 2]);
  args.writes = call.in[q].columns() != args.n;
  args.W = call.in[q].columns();
}

void stream_read(const KernelCall& call) {
  by_type(call.in[0].dtype, [&]<class X>(X) {
    StreamArgs args = stream_args(call, call.out[0]);
    args.x = numbers<const X>(call.in[0]);
    set_stream_weights(args, call, 1);
    args.to_H = numbers<X>(call.out[0]);
    args.to_w = numbers<float>(call.out[1]);
    args.to_rstd_T = numbers<float>(call.out[2]);
    launch(read_streams<X>, {.blocks_x = args.T, .threads = kStreamThreads}, args, call.stream);
  });
}

void stream_read_dgrad(const KernelCall& call) {
  by_type(call.in[0].dtype, [&]<class X>(X) {
    StreamArgs args = stream_args(call, call.in[0]);
    args.y = numbers<const X>(call.in[0]);
    args.x = numbers<const X>(call.in[1]);
    set_stream_weights(args, call, 2);
    args.rstd_T = numbers<const float>(call.in[5]);
    args.dw = numbers<const float>(operand(call.in, 6));
    args.dres = numbers<const X>(operand(call.in, 7));
    args.to = numbers<X>(call.out[0]);
    args.to_w = numbers<float>(call.out[1]);
    const int64_t parts = blocks_for(args.T, kStreamGradRows), W = call.out[2].elements(),
                  scales = call.out[3].elements();
    args.dbase_parts = reinterpret_cast<float*>(call.scratch);
    args.dscale_parts = args.dbase_parts + parts * W;
    launch(read_streams_dgrad<X>, {.blocks_x = parts, .threads = kStreamThreads}, args, call.stream);
    add_column_parts(args.dbase_parts, parts, W, numbers<float>(call.out[2]), false, call.stream);
    add_column_parts(args.dscale_parts, parts, scales, numbers<float>(call.out[3]), false, call.stream);
  });
}

int64_t stream_grad_scratch(const ir::Listing& listing, const ir::Op& op, const ir::RowCounts& rows) {
  const int64_t sums = listing.value(op.in[3]).shape[0].count + listing.value(op.in[4]).shape[0].count;
  return blocks_for(listing.elements(op.in[5], rows), kStreamGradRows) * sums * 4;
}

void stream_write(const KernelCall& call) {
  by_type(call.in[0].dtype, [&]<class X>(X) {
    StreamArgs args = stream_args(call, call.in[1]);
    args.x = numbers<const X>(call.in[0]);
    args.y = numbers<const X>(call.in[1]);
    args.w = numbers<const float>(call.in[2]);
    args.W = call.in[2].columns();
    args.to = numbers<X>(call.out[0]);
    launch(write_streams<X>, {.blocks_x = args.T, .threads = kStreamThreads}, args, call.stream);
  });
}

void stream_write_dgrad(const KernelCall& call) {
  by_type(call.in[0].dtype, [&]<class X>(X) {
    StreamArgs args = stream_args(call, call.in[2]);
    args.ds = numbers<const X>(call.in[0]);
    args.x = numbers<const X>(call.in[1]);
    args.y = numbers<const X>(call.in[2]);
    args.w = numbers<const float>(call.in[3]);
    args.W = call.in[3].columns();
    args.to = numbers<X>(call.out[0]);
    args.to_H = numbers<X>(call.out[1]);
    args.to_w = numbers<float>(call.out[2]);
    launch(write_streams_dgrad<X>, {.blocks_x = args.T, .threads = kStreamThreads}, args, call.stream);
  });
}

}  // namespace

std::vector<KernelEntry> hyper_connection_entries() {
  return {entry("read_streams", "rows", stream_read),
          entry("read_streams_dgrad", "rows", stream_read_dgrad, narrow<Among::in, 0>, stream_grad_scratch),
          entry("write_streams", "rows", stream_write), entry("write_streams_dgrad", "rows", stream_write_dgrad)};
}

}  // namespace heddle::kernels::cuda
