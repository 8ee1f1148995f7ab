#include "bench/gpu_ops/op_bench.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "heddle/backends/backend.h"
#include "heddle/base/clock.h"
#include "heddle/base/random.h"
#include "heddle/base/statistics.h"
#include "heddle/ops/ops.h"

namespace heddle::bench {

namespace {

constexpr int64_t kArenaBytes = int64_t{24} << 30, kAlignment = 256;
/// A launch is repeated until this much time has passed, so that the clock that the host reads is exact enough.
constexpr double kTimedSeconds = 5e-3;

int64_t aligned(int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

}  // namespace

/// An op's values and their places in the arena.
struct OpBench::Laid {
  ir::Listing listing;
  std::vector<int64_t> offsets;
  int64_t end = 0;

  ir::ValueId add(ir::Value value) {
    value.name = "v" + std::to_string(listing.values.size());
    const ir::ValueId id = listing.add_value(std::move(value));
    offsets.push_back(end);
    end += aligned(listing.bytes(id, ir::FixedRows(0)));
    return id;
  }
  device::TensorView view(ir::ValueId id, std::byte* base) const {
    device::TensorView v;
    if (id == ir::none) return v;
    const ir::Value& value = listing.value(id);
    v.data = base + offsets[static_cast<size_t>(id)];
    v.dtype = value.dtype;
    v.rank = static_cast<int8_t>(value.shape.size());
    for (size_t i = 0; i < value.shape.size(); ++i) v.dims[i] = value.shape[i].count;
    return v;
  }
};

OpBench::OpBench(std::string backend, int repeats)
    : backend_(std::move(backend)),
      repeats_(repeats),
      device_(backends::named(backend_).open({})),
      stream_(device_->stream("compute", 1)),
      arena_(device_->arena(kArenaBytes)) {}

void OpBench::fill(Laid& laid, ir::ValueId id, const OpOperand& o) {
  const int64_t bytes = laid.listing.bytes(id, ir::FixedRows(0)), offset = laid.offsets[static_cast<size_t>(id)];
  arena_->reach(offset + bytes);
  std::byte* to = arena_->base() + offset;
  if (!o.integers.empty()) return device_->upload(to, o.integers.data(), bytes);
  constexpr int64_t kPeriod = 1 << 20;  // numbers repeat from here on
  const int64_t size = size_of(o.dtype), count = bytes / size, drawn = std::min(count, kPeriod);
  std::vector<std::byte> values(static_cast<size_t>(drawn * size));
  const RandomKey key(static_cast<uint64_t>(id) + 1);
  for (int64_t i = 0; i < drawn; ++i) {
    const auto x = static_cast<float>(0.5 * key.normal(static_cast<uint64_t>(i)));
    switch (o.dtype) {
      case Dtype::bf16: reinterpret_cast<bf16*>(values.data())[i] = bf16(x); break;
      case Dtype::f32: reinterpret_cast<float*>(values.data())[i] = std::abs(x); break;
      case Dtype::f64: reinterpret_cast<double*>(values.data())[i] = 0.5; break;
      default: break;
    }
  }
  for (int64_t at = 0; at < count; at += drawn) {
    device_->upload(to + at * size, values.data(), std::min(drawn, count - at) * size);
  }
}

OpTime OpBench::time(const OpToTime& wanted) {
  OpTime result{.name = wanted.name, .kind = wanted.kind};
  Laid laid;
  ir::Op op;
  op.def = &ops::find(wanted.kind);
  op.attributes = wanted.attributes;
  op.phase = wanted.phase;
  const auto add = [&](const OpOperand& o, ir::Role role) -> ir::ValueId {
    if (o.shape.empty()) return ir::none;
    ir::Value value{.dtype = o.dtype, .role = role};
    for (const int64_t dim : o.shape) value.shape.push_back({dim, ir::none});
    return laid.add(std::move(value));
  };
  for (const OpOperand& o : wanted.in) op.in.push_back(add(o, ir::Role::activation));
  for (const OpOperand& o : wanted.updates) op.updates.push_back(add(o, ir::Role::accumulator));
  for (ir::Value& value : op.def->infer(laid.listing, op)) op.out.push_back(laid.add(std::move(value)));
  const backends::Backend& backend = backends::named(backend_);
  const kernels::KernelEntry* kernel = nullptr;
  try {
    kernel = &backend.select_kernel(laid.listing, op);
  } catch (const Error& refused) {
    result.refused = refused.what();
    return result;
  }
  result.kernel = kernel->name;
  const ir::FixedRows rows(0);
  const int64_t scratch = laid.end;
  laid.end += kernel->scratch_bytes ? aligned(kernel->scratch_bytes(laid.listing, op, rows)) : 0;
  const ir::Cost cost = op.def->cost(laid.listing, op, rows);
  result.flops = cost.flops;
  result.bytes = cost.bytes;
  const auto half = static_cast<int64_t>(cost.bytes / 2);
  const int64_t copy_from = laid.end, copy_to = copy_from + aligned(half);
  arena_->reach(copy_to + half);
  for (size_t i = 0; i < op.in.size(); ++i) {
    if (op.in[i] != ir::none) fill(laid, op.in[i], wanted.in[i]);
  }
  for (size_t i = 0; i < op.updates.size(); ++i) {
    if (op.updates[i] != ir::none) fill(laid, op.updates[i], wanted.updates[i]);
  }

  const auto views = [&](const std::vector<ir::ValueId>& ids) {
    std::vector<device::TensorView> found;
    for (const ir::ValueId id : ids) found.push_back(laid.view(id, arena_->base()));
    return found;
  };
  const std::vector<device::TensorView> ins = views(op.in), outs = views(op.out), updates = views(op.updates);
  device::Launch launch;
  launch.run = kernel->run;
  launch.call = {.op = &op, .in = ins, .out = outs, .updates = updates, .scratch = arena_->base() + scratch};
  ir::Op copying{.def = &ops::find("copy_out")};
  device::TensorView from, to;
  from.rank = to.rank = 1;
  from.dtype = to.dtype = Dtype::u8;
  from.dims[0] = to.dims[0] = half;
  from.data = arena_->base() + copy_from;
  to.data = arena_->base() + copy_to;
  device::Launch copy;
  copy.run = backend.select_kernel(laid.listing, copying).run;
  copy.call = {.op = &copying, .in = {&from, 1}, .out = {&to, 1}};
  const auto once = [&](const device::Launch& l, int times) {
    stream_->synchronize();
    const double start = now_s();
    for (int i = 0; i < times; ++i) stream_->launch(l);
    stream_->synchronize();
    return (now_s() - start) / times;
  };
  const auto times_of = [&](const device::Launch& l) {
    once(l, 1);
    return static_cast<int>(std::clamp(std::ceil(kTimedSeconds / std::max(once(l, 1), 1e-9)), 1.0, 1000.0));
  };
  const int op_times = times_of(launch), copy_times = times_of(copy);
  std::vector<double> own, share;
  for (int r = 0; r < repeats_; ++r) {
    const double a = once(launch, op_times), b = once(copy, copy_times);
    own.push_back(a);
    share.push_back(b / a);
  }
  result.seconds = median(own);
  result.share_of_copy = median(share);
  return result;
}

}  // namespace heddle::bench
