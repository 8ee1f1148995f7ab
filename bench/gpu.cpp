// The cuda backend on one device: fused kernels as a share of the bandwidth of a plain copy, products and attention
// in TFLOP/s, and a training step with the share of its time in which the compute stream stood idle.
//
//   bench_gpu [--repeats 15] [--tokens 8192] [--layers 4] [--steps 5]
//
// An op and a copy of as many bytes take turns; medians are printed, and the share is the median of the pairs.
// Bytes are those that must move: every operand once, updates twice. Shapes are DeepSeek-V2-Lite's. A step's memory
// is predicted before it runs and compared with what the arena and the device say then. `./dev bench gpu --peers`
// is another program: bench/torch_bench.py on the device.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "bench/support/main.h"
#include "heddle/backends/backend.h"
#include "heddle/base/clock.h"
#include "heddle/base/random.h"
#include "heddle/base/statistics.h"
#include "heddle/config/run_config.h"
#include "heddle/device/device.h"
#include "heddle/kernels/registry.h"
#include "heddle/ops/ops.h"
#include "heddle/plan/plan.h"
#include "heddle/runtime/executor.h"
#include "heddle/runtime/predict.h"

namespace {
using namespace heddle;
using ir::ValueId;

struct Options {
  int repeats = 15, steps = 5;
  int64_t tokens = 8192, layers = 4;
};

/// Ops with operands in one arena, run many times.
class Bench {
 public:
  explicit Bench(const Options& options)
      : options_(options),
        device_(device::cuda_device({})),
        stream_(device_->stream("compute", 1)),
        arena_(device_->arena(int64_t{24} << 30)) {}

  struct Operand {
    Dtype dtype = Dtype::f32;
    std::vector<int64_t> shape;  // empty: absent
    std::vector<int32_t> integers;
  };

  /// Times the op; prints its share of a copy's bandwidth, or TFLOP/s where products outweigh bytes.
  void run(const std::string& name, const std::string& kind, const std::vector<Operand>& in,
           const ir::Attributes& attributes, const std::vector<Operand>& updates = {},
           ir::Phase phase = ir::Phase::F) {
    ir::Listing listing;
    int64_t at = 0;
    std::vector<int64_t> offsets;
    const auto add = [&](const Operand& o, ir::Role role) -> ValueId {
      if (o.shape.empty()) return ir::none;
      ir::Value value{.name = "v" + std::to_string(listing.values.size()), .dtype = o.dtype, .role = role};
      for (const int64_t dim : o.shape) value.shape.push_back({dim, ir::none});
      const ValueId id = listing.add_value(std::move(value));
      place(listing, id, at, offsets);
      fill(listing, id, offsets, o);
      return id;
    };
    ir::Op op;
    op.def = &ops::find(kind);
    op.attributes = attributes;
    op.phase = phase;
    for (const Operand& o : in) op.in.push_back(add(o, ir::Role::activation));
    for (const Operand& o : updates) op.updates.push_back(add(o, ir::Role::accumulator));
    for (ir::Value& value : op.def->infer(listing, op)) {
      value.name = "out" + std::to_string(listing.values.size());
      op.out.push_back(listing.add_value(std::move(value)));
      place(listing, op.out.back(), at, offsets);
    }
    const kernels::KernelEntry& kernel = backends::named("cuda").select_kernel(listing, op);
    const ir::FixedRows rows(0);
    const int64_t scratch = at;
    at += kernel.scratch_bytes ? kernel.scratch_bytes(listing, op, rows) : 0;
    const ir::Cost cost = op.def->cost(listing, op, rows);
    const auto bytes = static_cast<int64_t>(cost.bytes);
    const int64_t copy_from = (at + 255) / 256 * 256, copy_to = copy_from + bytes / 2;
    arena_->reach(copy_to + bytes / 2);

    const auto views = [&](const std::vector<ValueId>& ids) {
      std::vector<device::TensorView> found;
      for (const ValueId id : ids) found.push_back(view(listing, id, offsets));
      return found;
    };
    const std::vector<device::TensorView> ins = views(op.in), outs = views(op.out), ups = views(op.updates);
    device::Launch launch;
    launch.run = kernel.run;
    launch.call = {.op = &op, .in = ins, .out = outs, .updates = ups, .scratch = arena_->base() + scratch};
    ir::Op copying{.def = &ops::find("copy_out")};
    device::TensorView from, to;
    from.rank = to.rank = 1;
    from.dtype = to.dtype = Dtype::u8;
    from.dims[0] = to.dims[0] = bytes / 2;
    from.data = arena_->base() + copy_from;
    to.data = arena_->base() + copy_to;
    device::Launch copy;
    for (const kernels::KernelEntry& k : kernels::cuda_kernels()) {
      if (k.op_kind == "copy_out") copy.run = k.run;
    }
    copy.call = {.op = &copying, .in = {&from, 1}, .out = {&to, 1}};
    const auto time = [&](const device::Launch& l) {
      constexpr int kTimes = 10;
      stream_->synchronize();
      const double start = now_s();
      for (int i = 0; i < kTimes; ++i) stream_->launch(l);
      stream_->synchronize();
      return (now_s() - start) / kTimes;
    };
    time(launch);
    time(copy);
    std::vector<double> own, share;
    for (int r = 0; r < options_.repeats; ++r) {
      const double a = time(launch), b = time(copy);
      own.push_back(a);
      share.push_back(b / a);
    }
    const double seconds = median(own);
    if (cost.flops / cost.bytes > 100) {
      std::printf("%-28s %-16s %9.1f us  %7.1f TFLOP/s\n", name.c_str(), std::string(kernel.name).c_str(),
                  seconds * 1e6, cost.flops / seconds * 1e-12);
    } else {
      std::printf("%-28s %-16s %9.1f us  %7.3f of a copy, %6.0f GB/s\n", name.c_str(),
                  std::string(kernel.name).c_str(), seconds * 1e6, median(share), cost.bytes / seconds * 1e-9);
    }
  }

 private:
  static void place(const ir::Listing& listing, ValueId id, int64_t& at, std::vector<int64_t>& offsets) {
    offsets.resize(listing.values.size());
    offsets[static_cast<size_t>(id)] = at;
    at += (listing.bytes(id, ir::FixedRows(0)) + 255) / 256 * 256;
  }
  device::TensorView view(const ir::Listing& listing, ValueId id, const std::vector<int64_t>& offsets) const {
    device::TensorView v;
    if (id == ir::none) return v;
    const ir::Value& value = listing.value(id);
    v.data = arena_->base() + offsets[static_cast<size_t>(id)];
    v.dtype = value.dtype;
    v.rank = static_cast<int8_t>(value.shape.size());
    for (size_t i = 0; i < value.shape.size(); ++i) v.dims[i] = value.shape[i].count;
    return v;
  }
  /// Random numbers: zeros are faster than what a run sees.
  void fill(const ir::Listing& listing, ValueId id, const std::vector<int64_t>& offsets, const Operand& o) {
    const int64_t bytes = listing.bytes(id, ir::FixedRows(0));
    arena_->reach(offsets[static_cast<size_t>(id)] + bytes);
    std::vector<std::byte> values(static_cast<size_t>(bytes));
    const RandomKey key(static_cast<uint64_t>(id) + 1);
    constexpr int64_t kPeriod = 1 << 20;  // numbers repeat from here on
    const int64_t size = size_of(o.dtype), count = bytes / size;
    for (int64_t i = 0; i < std::min(count, kPeriod); ++i) {
      const double x = 0.5 * key.normal(static_cast<uint64_t>(i));
      switch (o.dtype) {
        case Dtype::bf16: reinterpret_cast<bf16*>(values.data())[i] = bf16(static_cast<float>(x)); break;
        case Dtype::f32: reinterpret_cast<float*>(values.data())[i] = static_cast<float>(std::abs(x)); break;
        case Dtype::f64: reinterpret_cast<double*>(values.data())[i] = 0.5; break;
        default: break;
      }
    }
    for (int64_t i = kPeriod; i < count && o.integers.empty(); i += kPeriod) {
      std::memcpy(values.data() + i * size, values.data(),
                  static_cast<size_t>(std::min(kPeriod, count - i) * size));
    }
    if (!o.integers.empty()) std::memcpy(values.data(), o.integers.data(), static_cast<size_t>(bytes));
    device_->upload(arena_->base() + offsets[static_cast<size_t>(id)], values.data(), bytes);
  }

  Options options_;
  std::unique_ptr<device::Device> device_;
  std::unique_ptr<device::Stream> stream_;
  std::unique_ptr<device::Arena> arena_;
};

void kernels_of(const Options& options) {
  Bench bench(options);
  const int64_t T = options.tokens, H = 2048, F = 1408, h = 16, E = 64, k = 6;
  constexpr Dtype X = Dtype::bf16, A = Dtype::f32, I = Dtype::i32;
  std::vector<int32_t> experts, row_of(static_cast<size_t>(T * k)), token_of(static_cast<size_t>(T * k)),
      offsets{0};
  for (int64_t t = 0; t < T; ++t) {
    for (int64_t j = 0; j < k; ++j) experts.push_back(static_cast<int32_t>((t * 7 + j * (E / k)) % E));
    std::sort(experts.end() - k, experts.end());
  }
  int32_t next = 0;
  for (int32_t e = 0; e < E; ++e) {
    for (size_t i = 0; i < experts.size(); ++i) {
      if (experts[i] != e) continue;
      row_of[i] = next;
      token_of[static_cast<size_t>(next++)] = static_cast<int32_t>(static_cast<int64_t>(i) / k);
    }
    offsets.push_back(next);
  }
  const Bench::Operand x{X, {T, H}}, g{A, {H}}, rows{X, {T * k, H}};
  const Bench::Operand chosen{I, {T, k}, experts}, places{I, {T, k}, row_of}, tokens{I, {T * k}, token_of};
  const Bench::Operand cuts{I, {E + 1}, offsets}, gates{A, {T, k}};
  bench.run("rms_norm", "rms_norm", {x, g}, {{"epsilon", 1e-6}});
  bench.run("add_rms_norm", "add_rms_norm", {x, x, g}, {{"epsilon", 1e-6}});
  bench.run("rms_norm_dgrad", "rms_norm_dgrad", {x, x, g, {A, {T}}, x}, {}, {}, ir::Phase::I);
  bench.run("swiglu", "swiglu", {{X, {T * k, 2 * F}}, {}}, {});
  bench.run("swiglu_dgrad", "swiglu_dgrad", {{X, {T * k, F}}, {X, {T * k, 2 * F}}, {}}, {}, {}, ir::Phase::I);
  const ir::Attributes mla{{"heads", h},       {"nope", 128},   {"rope", 64},
                           {"value_dim", 128}, {"sequence", T}, {"interleaved", 1}};
  const Bench::Operand table{A, {T, 64}}, q{X, {T, h * 192}}, value{X, {T, h * 128}};
  bench.run("mla_rope", "mla_rope", {q, {X, {T, h * 256}}, {X, {T, 64}}, table}, mla);
  bench.run("mla_rope_dgrad", "mla_rope_dgrad", {q, q, value, table}, mla, {}, ir::Phase::I);
  bench.run("permute", "permute", {x, places, tokens, chosen}, {});
  bench.run("permute_dgrad", "permute_dgrad", {rows, places, chosen}, {}, {}, ir::Phase::I);
  bench.run("unpermute", "unpermute", {rows, gates, places, chosen, x}, {});
  bench.run("unpermute_dgrad", "unpermute_dgrad", {x, rows, gates, places}, {}, {}, ir::Phase::I);
  const Bench::Operand state{A, {1 << 26}};
  bench.run("adamw", "adamw", {{Dtype::f64, {1}}, {Dtype::f64, {3}}, state},
            {{"beta1", 0.9}, {"beta2", 0.95}, {"epsilon", 1e-8}, {"decay", 0.1}, {"copy", 1}},
            {state, state, state, {X, {1 << 26}}}, ir::Phase::end);
  bench.run("linear", "linear", {x, {X, {4 * H, H}}, {}}, {{"wide", 0}});
  bench.run("linear_wgrad", "linear_wgrad", {x, {X, {T, 4 * H}}}, {}, {{A, {4 * H, H}}}, ir::Phase::W);
  bench.run("grouped_linear", "grouped_linear", {rows, {X, {E, 2 * F, H}}, cuts}, {});
  bench.run("grouped_linear_wgrad", "grouped_linear_wgrad", {rows, {X, {T * k, 2 * F}}, cuts}, {},
            {{A, {E, 2 * F, H}}}, ir::Phase::W);
  const ir::Attributes attention{{"heads", h},       {"kv_heads", h}, {"head_dim", 192}, {"value_dim", 128},
                                 {"sequence", 4096}, {"causal", 1},   {"scale", 0.07}};
  bench.run("attention", "attention", {q, q, value}, attention);
  bench.run("attention_dgrad", "attention_dgrad", {value, q, q, value, value, {A, {T, h}}}, attention, {},
            ir::Phase::I);
}

/// A step of DeepSeek-V2-Lite, cut in depth.
void step_of(const Options& options) {
  model::ModelConfig c = config::parse_run_config("", "", {"model.preset=deepseek-v2-lite"}).model;
  c.num_hidden_layers = static_cast<int>(options.layers);
  plan::Plan plan;
  plan.dtype = Dtype::bf16;
  plan.sequence_length = 4096;
  plan.sequences = std::max<int64_t>(1, options.tokens / 4096);
  plan.microbatches = 2;
  const plan::Lowered lowered = plan::lower(c, plan);
  const std::unique_ptr<device::Device> device = device::cuda_device({});
  const int64_t free_before = device->memory_bytes();
  const int64_t predicted = runtime::predict_memory(lowered.program, 0, "cuda", free_before).reserved_bytes;
  runtime::ExecutorOptions run;
  run.backend = "cuda";
  run.device = device.get();
  run.place = plan::Mesh(plan.mesh).at(0);
  runtime::Executor executor(lowered.program, run);
  for (const model::Parameter& p : lowered.parameters[0]) {
    for (const char* prefix : {"", "master.", "m.", "v."}) {
      const ValueId id = lowered.program.listings[0].find(prefix + p.name);
      if (id == ir::none) continue;
      const device::TensorView view = executor.view(0, id);
      if (view.dtype != Dtype::f32) continue;
      const bool one = p.start == model::Parameter::Start::ones, state = *prefix == 'm' || *prefix == 'v';
      const RandomKey key = RandomKey(1).with(p.name);
      for (int64_t i = 0; i < view.elements(); ++i) {
        const bool moment = state && std::strlen(prefix) == 2;
        view.as<float>()[i] = moment ? 0
                              : one  ? 1
                                     : static_cast<float>(0.02 * key.normal(static_cast<uint64_t>(i % 4096)));
      }
    }
  }
  executor.make_weights();
  device::Batch batch;
  const int64_t ids = plan.sequences * (plan.sequence_length + 1);
  for (int m = 0; m < plan.microbatches; ++m) {
    std::vector<int32_t>& tokens = batch.microbatches.emplace_back().tokens;
    for (int64_t i = 0; i < ids; ++i)
      tokens.push_back(static_cast<int32_t>(RandomKey(2).bits(static_cast<uint64_t>(m * ids + i)) %
                                            static_cast<uint64_t>(c.vocab_size)));
  }
  const double all = static_cast<double>(plan.microbatches * plan.sequences * plan.sequence_length);
  batch.scales = {1 / all, 1.0 / static_cast<double>(plan.microbatches * plan.sequences), 1 / all};
  batch.hyper = {1e-4, 0.1, 0.05};
  double flops = 0;
  for (const ir::Op& op : lowered.program.listings[0].ops) {
    flops += (ir::once_a_step(op.phase) ? 1 : plan.microbatches) *
             op.def->cost(lowered.program.listings[0], op, ir::FixedRows()).flops;
  }
  executor.run_step(batch);
  std::vector<double> seconds, idle, enqueue;
  for (int s = 0; s < options.steps; ++s) {
    const double start = now_s();
    executor.run_step(batch);
    seconds.push_back(now_s() - start);
    enqueue.push_back(static_cast<double>(executor.enqueue_ns()) * 1e-9);
    executor.set_trace(true);
    executor.run_step(batch);
    executor.set_trace(false);
    std::vector<device::Span> spans = executor.stream(0).take_spans();
    int64_t busy = 0;
    for (const device::Span& span : spans) busy += span.end_ns - span.start_ns;
    idle.push_back(1 -
                   static_cast<double>(busy) / static_cast<double>(spans.back().end_ns - spans.front().start_ns));
  }
  const double step = median(seconds);
  std::printf(
      "step of %lld layers, %.0f tokens: %.1f ms, %.0f tokens/s, %.1f TFLOP/s; compute stream idle %.1f %%\n",
      static_cast<long long>(options.layers), all, step * 1e3, all / step, flops / step * 1e-12,
      100 * median(idle));
  constexpr double kMiB = 1 << 20;
  std::printf("enqueueing took the host %.1f ms\n", median(enqueue) * 1e3);
  std::printf("memory, MiB: predicted %.1f, reached %.1f, held by the arena %.1f, gone of the device %.1f\n",
              static_cast<double>(predicted) / kMiB,
              static_cast<double>(executor.walk().storage().reserved_bytes()) / kMiB,
              static_cast<double>(executor.held_bytes()) / kMiB,
              static_cast<double>(free_before - device->memory_bytes()) / kMiB);
}

}  // namespace

int heddle::bench::run(Arguments& arguments) {
  Options options;
  arguments.number("--repeats", options.repeats);
  arguments.number("--tokens", options.tokens);
  arguments.number("--layers", options.layers);
  arguments.number("--steps", options.steps);
  arguments.read();
  options.tokens = std::max<int64_t>(4096, options.tokens / 4096 * 4096);
  if (const Support there = device::cuda_available(); !there) {
    std::fprintf(stderr, "bench_gpu: skipped: %s\n", there.reason.c_str());
    return 77;
  }
  kernels_of(options);
  step_of(options);
  return 0;
}
