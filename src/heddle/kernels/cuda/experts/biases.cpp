// Entries of experts' biases and of clamped SwiGLU.
#include "heddle/kernels/cuda/backend.h"
#include "heddle/kernels/cuda/experts/bias_kernels.h"
#include "heddle/kernels/cuda/step_kernels.h"

namespace heddle::kernels::cuda {

namespace {

constexpr int64_t kColumnsPerBlock = kBiasThreads * 8;

LaunchShape by_rows(int64_t columns, int64_t rows) {
  return {.blocks_x = blocks_for(rows, kBiasRows),
          .blocks_y = blocks_for(columns, kColumnsPerBlock),
          .threads = kBiasThreads};
}
LaunchShape by_sums(int64_t columns, int64_t sums) {
  return {.blocks_x = sums, .blocks_y = blocks_for(columns, kColumnsPerBlock), .threads = kBiasThreads};
}

void add_bias(const KernelCall& call) {
  const int64_t R = call.in[0].rows(), N = call.in[0].columns();
  by_type(call.in[0].dtype, [&]<class X>(X) {
    launch(add_expert_bias<X>, by_rows(N, R),
           {numbers<const X>(call.in[0]), numbers<const float>(call.in[1]),
            numbers<const float>(operand(call.in, 3)), numbers<const int32_t>(call.in[2]), numbers<X>(call.out[0]),
            R, N, call.in[1].dim(0), call.in[2].elements() - 1},
           call.stream);
  });
}

void sum_rows(const TensorView& dy, const int32_t* first, int64_t sums, float* to, bool add, void* stream) {
  by_type(dy.dtype, [&]<class X>(X) {
    launch(sum_expert_rows<X>, by_sums(dy.columns(), sums), {numbers<const X>(dy), first, to, dy.columns(), add},
           stream);
  });
}

void add_bias_wgrad(const KernelCall& call) {
  const auto* offsets = numbers<const int32_t>(call.in[1]);
  const int64_t own = call.updates[0].dim(0), copies = call.in[1].elements() - 1 - own;
  sum_rows(call.in[0], offsets, own, numbers<float>(call.updates[0]), !call.overwrite, call.stream);
  if (copies > 0) sum_rows(call.in[0], offsets + own, copies, numbers<float>(call.out[0]), false, call.stream);
}

/// dy, offsets, n?: for each expert and source a partial of its own, put on the grid.
void add_bias_wgrad_exact(const KernelCall& call) {
  const TensorView n = operand(call.in, 2);
  const int64_t own = call.updates[0].dim(0), E = call.in[1].elements() - 1;
  const int64_t N = call.in[0].columns(), sources = n ? n.dim(1) : 1;
  Scratch scratch(call.scratch);
  auto* first = scratch.take<int32_t>(E * sources + 1);
  auto* partials = scratch.take<float>(E * sources * N);
  launch(segments, {.threads = 32},
         {numbers<const int32_t>(call.in[1]), numbers<const int32_t>(n), first, E, sources}, call.stream);
  sum_rows(call.in[0], first, E * sources, partials, false, call.stream);
  for (int64_t i = 0; i < E * sources; ++i) {
    const int64_t e = i / sources;
    double* sum = e < own ? numbers<double>(call.updates[0]) + e * N : numbers<double>(call.out[0]) + (e - own) * N;
    launch(add_on_grid, {.blocks_x = blocks_for(N, 256)},
           {partials + i * N, sum, N, (call.overwrite || e >= own) && i % sources == 0}, call.stream);
  }
}
int64_t exact_scratch(const ir::Listing& listing, const ir::Op& op, const ir::RowCounts&) {
  const ir::Shape& sum = listing.value(op.updates[0]).shape;
  const int64_t sources = op.in.size() > 2 && op.in[2] != ir::none ? listing.value(op.in[2]).shape[1].count : 1;
  const int64_t experts = listing.value(op.in[1]).shape[0].count - 1;
  Scratch scratch(nullptr);
  scratch.take<int32_t>(experts * sources + 1);
  scratch.take<float>(experts * sources * sum[1].count);
  return scratch.bytes();
}

void gate_bias(const KernelCall& call) {
  const int64_t T = call.in[0].rows(), k = call.in[0].columns(), H = call.out[0].columns();
  by_type(call.out[0].dtype, [&]<class X>(X) {
    launch(gated_bias<X>, {.blocks_x = T, .threads = kBiasThreads},
           {numbers<const float>(call.in[0]), numbers<const int32_t>(call.in[1]), numbers<const float>(call.in[2]),
            numbers<X>(call.out[0]), T, k, H},
           call.stream);
  });
}

/// dy, experts, bias -> dgates.
void gate_bias_dgrad(const KernelCall& call) {
  const TensorView& experts = call.in[1];
  by_type(call.in[0].dtype, [&]<class X>(X) {
    launch(
        gated_bias_dots<X>, {.blocks_x = experts.elements(), .threads = kBiasThreads},
        {numbers<const X>(call.in[0]), nullptr, numbers<const int32_t>(experts), numbers<const float>(call.in[2]),
         numbers<float>(call.out[0]), experts.rows(), experts.columns(), call.in[0].columns(), false},
        call.stream);
  });
}

/// dy, gates, experts -> acc.
void gate_bias_wgrad(const KernelCall& call) {
  const TensorView &experts = call.in[2], &acc = call.updates[0];
  by_type(call.in[0].dtype, [&]<class X>(X) {
    launch(gated_bias_sums<X>, by_sums(acc.dim(1), acc.dim(0)),
           {numbers<const X>(call.in[0]), numbers<const float>(call.in[1]), numbers<const int32_t>(experts),
            nullptr, numbers<float>(acc), experts.rows(), experts.columns(), acc.dim(1), !call.overwrite},
           call.stream);
  });
}

/// u, bias?, offsets?, copies? -> a; or da before them -> du.
template <bool gradient>
void clamped(const KernelCall& call) {
  const size_t u = gradient ? 1 : 0;
  by_type(call.in[u].dtype, [&]<class X>(X) {
    ClampedArgs args{};
    args.u = numbers<const X>(call.in[u]);
    args.bias_E2F = numbers<const float>(operand(call.in, u + 1));
    args.offsets = numbers<const int32_t>(operand(call.in, u + 2));
    args.copies_C2F = numbers<const float>(operand(call.in, u + 3));
    args.own = args.bias_E2F != nullptr ? call.in[u + 1].dim(0) : 0;
    args.experts = operand(call.in, u + 2) ? call.in[u + 2].elements() - 1 : 0;
    if (gradient) args.da_RF = numbers<const X>(call.in[0]);
    args.to = numbers<X>(call.out[0]);
    args.R = call.in[u].rows();
    args.F = call.in[u].columns() / 2;
    args.alpha = static_cast<float>(call.op->attributes.number("alpha"));
    args.limit = static_cast<float>(call.op->attributes.number("limit"));
    launch(gradient ? clamped_swiglu_dgrad<X> : clamped_swiglu<X>, by_rows(args.F, args.R), args, call.stream);
  });
}

}  // namespace

std::vector<KernelEntry> expert_bias_entries() {
  return {entry("add_expert_bias", "rows", add_bias),
          entry("add_expert_bias_wgrad", "rows", add_bias_wgrad),
          entry("add_expert_bias_wgrad_exact", "rows", add_bias_wgrad_exact, narrow<Among::in, 0>, exact_scratch),
          entry("gated_bias", "token", gate_bias, narrow<Among::out, 0>),
          entry("gated_bias_dgrad", "slot", gate_bias_dgrad),
          entry("gated_bias_wgrad", "expert", gate_bias_wgrad),
          entry("clamped_swiglu", "rows", clamped<false>),
          entry("clamped_swiglu_dgrad", "rows", clamped<true>)};
}

}  // namespace heddle::kernels::cuda
