// Entries of the gated streams of the residual. T rows of n streams of H columns.
#include "heddle/kernels/cuda/backend.h"
#include "heddle/kernels/cuda/gated_stream_kernels.h"
#include "heddle/ops/hyper_connection.h"

namespace heddle::kernels::cuda {

namespace {

static_assert(kMostGatedStreams >= ops::kMostStreams);

/// `all`: of T rows of all streams.
GatedArgs gated_args(const KernelCall& call, const TensorView& all) {
  const ir::Attributes& attributes = call.op->attributes;
  GatedArgs args{};
  args.n = static_cast<int>(attributes.integer("streams"));
  args.T = all.rows();
  args.H = all.columns() / args.n;
  args.epsilon = static_cast<float>(attributes.number_or("epsilon", 0));
  args.offset = static_cast<float>(attributes.number_or("offset", 0));
  return args;
}

LaunchShape a_block_a_row(const GatedArgs& args) { return {.blocks_x = args.T, .threads = kGatedThreads}; }

void norm_streams(const KernelCall& call) {
  GatedArgs args = gated_args(call, call.in[0]);
  args.x = call.in[0].data;
  args.g = numbers<const float>(call.in[1]);
  args.to = call.out[0].data;
  args.to_w = numbers<float>(call.out[1]);
  by_type(call.in[0].dtype, [&]<class X>(X) { launch(norm_gated<X>, a_block_a_row(args), args, call.stream); });
}

void norm_streams_dgrad(const KernelCall& call) {
  GatedArgs args = gated_args(call, call.in[1]);
  args.y = call.in[0].data;
  args.x = call.in[1].data;
  args.g = numbers<const float>(call.in[2]);
  args.w = numbers<const float>(call.in[3]);
  args.dres = operand(call.in, 4).data;
  args.to = call.out[0].data;
  args.dg_parts = reinterpret_cast<float*>(call.scratch);
  const int64_t parts = blocks_for(args.T, kGatedGradRows);
  by_type(call.in[1].dtype, [&]<class X>(X) {
    launch(norm_gated_dgrad<X>, {.blocks_x = parts, .threads = kGatedThreads}, args, call.stream);
  });
  add_column_parts(args.dg_parts, parts, args.n * args.H, numbers<float>(call.out[1]), false, call.stream);
}

int64_t gain_parts_bytes(const ir::Listing& listing, const ir::Op& op, const ir::RowCounts& counts) {
  const MatrixSize x(listing, op.in[1], counts);
  return blocks_for(x.rows, kGatedGradRows) * x.columns * static_cast<int64_t>(sizeof(float));
}

void read_gated_streams(const KernelCall& call) {
  GatedArgs args = gated_args(call, call.in[0]);
  args.y = call.in[0].data;
  args.u = call.in[1].data;
  args.w = numbers<const float>(operand(call.in, 2));
  args.to_row = call.out[0].data;
  if (args.w != nullptr) args.to_w = numbers<float>(call.out[1]);
  by_type(call.in[0].dtype, [&]<class X>(X) { launch(read_gated<X>, a_block_a_row(args), args, call.stream); });
}

void read_gated_streams_dgrad(const KernelCall& call) {
  GatedArgs args = gated_args(call, call.in[1]);
  args.row = call.in[0].data;
  args.y = call.in[1].data;
  args.u = call.in[2].data;
  args.w = numbers<const float>(operand(call.in, 3));
  args.dw = numbers<const float>(operand(call.in, 4));
  args.to = call.out[0].data;
  args.to_second = call.out[1].data;
  if (args.w != nullptr) args.to_w = numbers<float>(call.out[2]);
  by_type(call.in[0].dtype,
          [&]<class X>(X) { launch(read_gated_dgrad<X>, a_block_a_row(args), args, call.stream); });
}

void gate_streams(const KernelCall& call) {
  GatedArgs args = gated_args(call, call.in[0]);
  args.x = call.in[0].data;
  args.y = call.in[1].data;
  args.row = call.in[2].data;
  args.to = call.out[0].data;
  by_type(call.in[0].dtype, [&]<class X>(X) { launch(gate_rows<X>, a_block_a_row(args), args, call.stream); });
}

void gate_streams_dgrad(const KernelCall& call) {
  GatedArgs args = gated_args(call, call.in[1]);
  args.u = call.in[0].data;
  args.x = call.in[1].data;
  args.y = call.in[2].data;
  args.row = call.in[3].data;
  args.to = call.out[0].data;
  args.to_second = call.out[1].data;
  args.to_row = call.out[2].data;
  by_type(call.in[0].dtype,
          [&]<class X>(X) { launch(gate_rows_dgrad<X>, a_block_a_row(args), args, call.stream); });
}

}  // namespace

std::vector<KernelEntry> gated_stream_entries() {
  return {entry("norm_streams", "rows", norm_streams),
          entry("norm_streams_dgrad", "rows", norm_streams_dgrad, narrow<Among::in, 0>, gain_parts_bytes),
          entry("read_gated_streams", "rows", read_gated_streams),
          entry("read_gated_streams_dgrad", "rows", read_gated_streams_dgrad),
          entry("gate_streams", "rows", gate_streams),
          entry("gate_streams_dgrad", "rows", gate_streams_dgrad)};
}

}  // namespace heddle::kernels::cuda
