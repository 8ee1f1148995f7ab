// Entries of element-wise ops: activations, sums, casts, columns, and copies between device and host.
#include <algorithm>
#include <memory>
#include <vector>

#include "heddle/base/files/chunk_sums.h"
#include "heddle/kernels/cuda/backend.h"
#include "heddle/kernels/cuda/map_kernels.h"
#include "heddle/kernels/cuda/step_kernels.h"

namespace heddle::kernels::cuda {

void add_column_parts(const float* parts, int64_t P, int64_t W, float* to, bool add, void* stream) {
  launch(column_sum, {.blocks_x = blocks_for(W, kColumnSumWidth), .threads = kColumnSumWidth * kColumnSumGroups},
         {parts, to, P, W, add}, stream);
}

namespace {

constexpr int64_t kCastBlock = 256 * 8;

/// T rows of W columns, W that of the first output, halved where that holds (gate, up) gradients.
template <Map map>
void map_op(const KernelCall& call) {
  constexpr bool gated_grad = map == Map::swiglu_dgrad;
  constexpr bool one = map == Map::silu || map == Map::gelu || map == Map::swiglu || map == Map::add_bias ||
                       map == Map::scale || map == Map::soft_cap || map == Map::clip || map == Map::squared_relu;
  constexpr size_t inputs = one ? 1 : map == Map::multiply_dgrad ? 3 : 2;
  const int64_t W = call.out[0].columns() / (gated_grad ? 2 : 1), T = call.out[0].rows();
  by_type(call.in[0].dtype, [&]<class X>(X) {
    MapArgs args{};
    for (size_t i = 0; i < inputs; ++i) args.in[i] = numbers<const X>(call.in[i]);
    const TensorView bias = operand(call.in, inputs);
    args.bias = numbers<const float>(bias);
    args.out[0] = numbers<X>(call.out[0]);
    args.T = T;
    args.W = W;
    args.tanh = call.op->attributes.integer_or("tanh", 0) != 0;
    if (map == Map::soft_cap || map == Map::soft_cap_dgrad)
      args.factor = static_cast<float>(call.op->attributes.number("cap"));
    if (map == Map::clip || map == Map::clip_dgrad) {
      args.factor = static_cast<float>(call.op->attributes.number("limit"));
      args.below = call.op->attributes.integer("below") != 0;
    }
    if (map == Map::scale) args.factor = static_cast<float>(call.op->attributes.number("factor"));
    constexpr bool bias_grad = gated_grad || map == Map::gelu_dgrad;
    if (map == Map::multiply_dgrad) args.out[1] = numbers<X>(call.out[1]);
    if (bias_grad && bias) args.bias_parts = reinterpret_cast<float*>(call.scratch);
    const int64_t parts = blocks_for(T, kMapRows);
    launch(map_rows<X, map>,
           {.blocks_x = parts, .blocks_y = blocks_for(W, kMapThreads * 8), .threads = kMapThreads}, args,
           call.stream);
    if (bias_grad && bias) {
      add_column_parts(args.bias_parts, parts, bias.elements(), numbers<float>(call.out[1]), false, call.stream);
    }
  });
}

/// Forward x and gate come first, backward after dy.
void gate_op(const KernelCall& call, bool backward) {
  const size_t at = backward ? 1 : 0;
  const TensorView &x = call.in[at], &gate = call.in[at + 1];
  const int64_t gates = gate.elements(), run = x.columns() / gate.columns();
  by_type(x.dtype, [&]<class X>(X) {
    const GateArgs args{backward ? numbers<const X>(call.in[0]) : nullptr,
                        numbers<const X>(x),
                        numbers<const X>(gate),
                        numbers<X>(call.out[0]),
                        backward ? numbers<X>(call.out[1]) : nullptr,
                        gates,
                        run,
                        call.op->attributes.integer_or("softplus", 0) != 0};
    if (run >= kWarp) {
      launch(sigmoid_gates<X, kWarp>,
             {.blocks_x = blocks_for(gates, kGateThreads / kWarp), .threads = kGateThreads}, args, call.stream);
    } else {
      launch(sigmoid_gates<X, 1>, {.blocks_x = blocks_for(gates, kGateThreads), .threads = kGateThreads}, args,
             call.stream);
    }
  });
}

void scale_by_op(const KernelCall& call) {
  const TensorView& x = call.in[0];
  by_type(x.dtype, [&]<class X>(X) {
    launch(scale_by<X>, {.blocks_x = blocks_for(x.elements(), kCastBlock)},
           {numbers<const X>(x), numbers<const float>(call.in[1]), numbers<const int32_t>(operand(call.in, 2)),
            numbers<X>(call.out[0]), x.elements(), x.elements() / std::max<int64_t>(1, call.in[1].elements())},
           call.stream);
  });
}

/// dy, x, index -> acc.
void scale_by_wgrad_op(const KernelCall& call) {
  const TensorView &x = call.in[1], &acc = call.updates[0];
  by_type(x.dtype, [&]<class X>(X) {
    launch(scale_by_sums<X>, {.blocks_x = acc.elements(), .threads = kScaleSumThreads},
           {numbers<const X>(call.in[0]), numbers<const X>(x), numbers<const int32_t>(call.in[2]),
            numbers<float>(acc), x.elements(), !call.overwrite},
           call.stream);
  });
}

int64_t bias_scratch(const ir::Listing& listing, const ir::Op& op, const ir::RowCounts& rows) {
  if (op.in.size() < 3 || op.in[2] == ir::none) return 0;
  const MatrixSize size(listing, op.out[0], rows);
  return blocks_for(size.rows, kMapRows) * size.columns * 4;
}

void accumulate_op(const KernelCall& call) {
  const TensorView &p = call.in[0], &acc = call.updates[0];
  const AccumulateArgs args{p.data, acc.data, acc.elements(), call.overwrite};
  const LaunchShape shape{.blocks_x = blocks_for(args.count, kCastBlock)};
  if (acc.dtype == Dtype::f64) {
    launch(p.dtype == Dtype::f64 ? accumulate<double, double> : accumulate<float, double>, shape, args,
           call.stream);
  } else {
    launch(p.dtype == Dtype::bf16 ? accumulate<Bf16, float> : accumulate<float, float>, shape, args, call.stream);
  }
}
Support accumulates(const ir::Listing& listing, const ir::Op& op) {
  const Dtype p = listing.value(op.in[0]).dtype, acc = listing.value(op.updates[0]).dtype;
  if (acc == Dtype::f64 ? p == Dtype::f64 || p == Dtype::f32 : acc == Dtype::f32 && p != Dtype::f64) {
    return Support::yes();
  }
  return Support::no(fmt::format("a sum of {} in {}", name_of(p), name_of(acc)));
}

void cast_op(const KernelCall& call) {
  const TensorView &from = call.in[0], &to = call.updates[0];
  launch(to.dtype == Dtype::bf16 ? cast<float, Bf16> : cast<float, float>,
         {.blocks_x = blocks_for(from.elements(), kCastBlock)},
         {numbers<const float>(from), to.data, from.elements()}, call.stream);
}

void copy_block(const void* from, int64_t from_pitch, void* to, int64_t to_pitch, int64_t width, int64_t T,
                void* stream) {
  const auto a = reinterpret_cast<uintptr_t>(from), b = reinterpret_cast<uintptr_t>(to);
  const uint64_t all = a | b | static_cast<uint64_t>(from_pitch | to_pitch | width);
  const auto go = [&](auto kernel, int64_t unit) {
    launch(kernel, {.blocks_x = std::min<int64_t>(blocks_for(T * width / unit, 256), 1 << 16)},
           {from, to, from_pitch / unit, to_pitch / unit, width / unit, T}, stream);
  };
  if (all % 16 == 0) return go(copy_columns<Quad>, 16);
  if (all % 8 == 0) return go(copy_columns<uint64_t>, 8);
  go(copy_columns<uint16_t>, 2);
}

void split_op(const KernelCall& call) {
  const TensorView& x = call.in[0];
  const int64_t runs = call.op->attributes.integer_or("runs", 1);  // each as a row of its own
  const int64_t size = size_of(x.dtype), T = x.dim(0) * runs, pitch = x.dim(1) / runs * size;
  const int64_t a = call.op->attributes.integer("first") * size;
  copy_block(x.data, pitch, call.out[0].data, a, a, T, call.stream);
  copy_block(x.as<std::byte>() + a, pitch, call.out[1].data, pitch - a, pitch - a, T, call.stream);
}

void concat_op(const KernelCall& call) {
  const TensorView& y = call.out[0];
  const int64_t runs = call.op->attributes.integer_or("runs", 1);
  const int64_t size = size_of(y.dtype), T = y.dim(0) * runs, pitch = y.dim(1) / runs * size;
  const int64_t a = call.op->attributes.integer("first") * size;
  const int64_t b = call.op->attributes.integer("second") * size;
  copy_block(operand(call.in, 0).data, a, y.data, pitch, a, T, call.stream);
  copy_block(operand(call.in, 1).data, b, y.as<std::byte>() + a, pitch, b, T, call.stream);
}

void copy_op(const KernelCall& call) {
  const TensorView &x = call.in[0], &y = call.out.empty() ? call.updates[0] : call.out[0];
  copy_bytes(y.data, x.data, call.op->attributes.integer_or("bytes", y.elements() * size_of(y.dtype)), call.stream);
}

struct Summing {
  const void* data;
  size_t bytes;
  uint32_t* sums;
};

/// The host sums what has arrived, before anything else sees it.
void snapshot_op(const KernelCall& call) {
  const TensorView &x = call.in[0], &y = call.updates[0];
  const int64_t bytes = x.elements() * size_of(x.dtype);
  copy_bytes(y.data, x.data, bytes, call.stream);
  run_on_host(
      [](void* with) {
        const std::unique_ptr<Summing> what(static_cast<Summing*>(with));
        const std::vector<uint32_t> sums = chunk_sums(what->data, what->bytes);
        std::copy(sums.begin(), sums.end(), what->sums);
      },
      new Summing{y.data, static_cast<size_t>(bytes), call.updates[1].as<uint32_t>()}, call.stream);
}

/// Losses are f64, and few: their sum is that of the end of a step.
void add_op(const KernelCall& call) {
  if (call.out[0].dtype != Dtype::f64) return map_op<Map::add>(call);
  const int64_t count = call.out[0].elements();
  launch(sum_parts, {.blocks_x = blocks_for(count, 256)},
         {{{call.in[0].data, call.in[1].data}, 2}, numbers<double>(call.out[0]), count, true, false}, call.stream);
}
Support adds(const ir::Listing& listing, const ir::Op& op) {
  return listing.value(op.in[0]).dtype == Dtype::f64 ? Support::yes() : narrow<Among::in, 0>(listing, op);
}

Support always(const ir::Listing&, const ir::Op&) { return Support::yes(); }

}  // namespace

std::vector<KernelEntry> map_entries() {
  return {entry("silu", "rows", map_op<Map::silu>),
          entry("silu_dgrad", "rows", map_op<Map::silu_dgrad>),
          entry("multiply", "rows", map_op<Map::multiply>),
          entry("multiply_dgrad", "rows", map_op<Map::multiply_dgrad>),
          entry("gelu", "rows", map_op<Map::gelu>),
          entry("gelu_dgrad", "rows", map_op<Map::gelu_dgrad>, narrow<Among::in, 0>, bias_scratch),
          entry("add_bias", "rows", map_op<Map::add_bias>),
          entry("swiglu", "rows", map_op<Map::swiglu>),
          entry("swiglu_dgrad", "rows", map_op<Map::swiglu_dgrad>, narrow<Among::in, 0>, bias_scratch),
          entry("add", "rows", add_op, adds),
          entry("scale", "rows", map_op<Map::scale>),
          entry("scale_by", "flat", scale_by_op),
          entry("scale_by_wgrad", "sums", scale_by_wgrad_op),
          entry("soft_cap", "rows", map_op<Map::soft_cap>),
          entry("soft_cap_dgrad", "rows", map_op<Map::soft_cap_dgrad>),
          entry("clip", "rows", map_op<Map::clip>),
          entry("clip_dgrad", "rows", map_op<Map::clip_dgrad>),
          entry("squared_relu", "rows", map_op<Map::squared_relu>),
          entry("squared_relu_dgrad", "rows", map_op<Map::squared_relu_dgrad>),
          entry("sigmoid_gate", "runs", [](const KernelCall& call) { gate_op(call, false); }),
          entry("sigmoid_gate_dgrad", "runs", [](const KernelCall& call) { gate_op(call, true); }),
          entry("accumulate", "flat", accumulate_op, accumulates),
          entry("cast_weight", "flat", cast_op),
          entry("pack_weight", "flat", cast_op),
          entry("split", "columns", split_op, always),
          entry("concat", "columns", concat_op, narrow<Among::out, 0>),
          entry("attention_finish", "flat",
                [](const KernelCall& call) {
                  const TensorView &from = call.in[0], &to = call.out[0];
                  launch(to.dtype == Dtype::bf16 ? cast<float, Bf16> : cast<float, float>,
                         {.blocks_x = blocks_for(from.elements(), kCastBlock)},
                         {numbers<const float>(from), to.data, from.elements()}, call.stream);
                }),
          entry("copy_out", "copy engine", copy_op, always),
          entry("copy_in", "copy engine", copy_op, always),
          entry("copy", "copy engine", copy_op, always),
          entry("snapshot_out", "copy engine", snapshot_op, always),
          entry("snapshot", "copy engine", snapshot_op, always)};
}

}  // namespace heddle::kernels::cuda
