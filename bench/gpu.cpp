// The cuda backend on one device: each op as a share of the bandwidth of a plain copy, or in TFLOP/s, and a
// training step with the share of its time in which the compute stream stood idle.
//
//   bench_gpu [--ops all|none|NAME,…] [--step 0|1] [--repeats 15] [--tokens 8192] [--layers 4] [--steps 5]
//   [--graphs] [--fp8]
//             [--preset deepseek-v2-lite] [--backend cuda|host] [--json]
//
// An op and a copy of as many bytes take turns; medians are printed, and the share is the median of the pairs.
// Shapes of ops are DeepSeek-V2-Lite's. A step's memory is predicted before it runs and compared with what the
// arena and the device say then. With `--backend host` the same runs on this machine's processor. `./dev bench gpu
// --peers` is another program: bench/torch_bench.py on the device.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/gpu_ops/op_bench.h"
#include "bench/support/main.h"
#include "bench/support/stops.h"
#include "heddle/backends/backend.h"
#include "heddle/base/clock.h"
#include "heddle/base/random.h"
#include "heddle/base/statistics.h"
#include "heddle/config/run_config.h"
#include "heddle/ops/ops.h"
#include "heddle/plan/plan.h"
#include "heddle/runtime/executor.h"
#include "heddle/runtime/predict.h"
#include "tests/runtime/batch.h"

namespace {
using namespace heddle;
using ir::ValueId;

struct Options {
  int repeats = 15, steps = 5, step = 1;
  int64_t tokens = 8192, layers = 4;
  std::string ops = "all", preset = "deepseek-v2-lite", backend = "cuda";
  bool graphs = false, fp8 = false, json = false;
};

constexpr int64_t kPeriod = 4096;  // weights repeat from here on

/// The ops that `wanted` names, apart by commas. ConfigError for others.
std::vector<bench::OpToTime> chosen_ops(const std::string& wanted, int64_t tokens) {
  if (wanted == "none") return {};
  std::vector<bench::OpToTime> all = bench::v2_lite_ops({.tokens = tokens}), chosen;
  if (wanted == "all") return all;
  for (size_t at = 0; at <= wanted.size();) {
    const size_t end = std::min(wanted.find(',', at), wanted.size());
    const std::string name = wanted.substr(at, end - at);
    const auto found = std::find_if(all.begin(), all.end(), [&](const auto& op) { return op.name == name; });
    if (found == all.end()) {
      std::string names;
      for (const auto& op : all) names += (names.empty() ? "" : ", ") + op.name;
      config_error("--ops: '{}' is none of all, none, {}", name, names);
    }
    chosen.push_back(*found);
    at = end + 1;
  }
  return chosen;
}

/// A step of the preset, cut in depth.
nlohmann::json step_of(const Options& options) {
  model::ModelConfig c = config::parse_run_config("", "", {"model.preset=" + options.preset}).model;
  c.num_hidden_layers = static_cast<int>(options.layers);
  c.num_nextn_predict_layers = 0;
  plan::Plan plan;
  plan.dtype = Dtype::bf16;
  plan.sequence_length = std::min<int64_t>(4096, options.tokens);
  plan.sequences = options.tokens / plan.sequence_length;
  plan.microbatches = 2;
  plan.device.fp8 = options.fp8 ? passes::Fp8::blocks : passes::Fp8::off;
  const plan::Lowered lowered = plan::lower(c, plan);
  const std::unique_ptr<device::Device> device = backends::named(options.backend).open({});
  const int64_t free_before = device->memory_bytes();
  const int64_t predicted =
      runtime::predict_memory(lowered.program, 0, options.backend, free_before).reserved_bytes;
  runtime::ExecutorOptions run;
  run.backend = options.backend;
  device->set_graphs(options.graphs);
  run.device = device.get();
  run.place = plan::Mesh(plan.mesh).at(0);
  runtime::Executor executor(lowered.program, run);
  for (const model::Parameter& p : lowered.parameters[0]) {
    for (const char* prefix : {"", "master.", "m.", "v."}) {
      const ValueId id = lowered.program.listings[0].find(prefix + p.name);
      if (id == ir::none) continue;
      const device::TensorView view = executor.view(0, id);
      if (view.dtype != Dtype::f32) continue;
      if (std::string_view(prefix) == "m." || std::string_view(prefix) == "v.") {
        std::memset(view.data, 0, static_cast<size_t>(view.elements()) * sizeof(float));
        continue;
      }
      std::vector<float> values(kPeriod, 1.0F);
      if (p.start != model::Parameter::Start::ones) {
        const RandomKey key = RandomKey(1).with(p.name);
        for (size_t i = 0; i < kPeriod; ++i) values[i] = static_cast<float>(0.02 * key.normal(i));
      }
      for (int64_t at = 0; at < view.elements(); at += kPeriod) {
        std::memcpy(view.as<float>() + at, values.data(),
                    static_cast<size_t>(std::min<int64_t>(kPeriod, view.elements() - at)) * sizeof(float));
      }
    }
  }
  executor.make_weights();
  test::Batch batch;
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
  const device::Inputs inputs = test::inputs_of(batch, executor);
  executor.run_step(inputs);
  executor.run_step(inputs);  // the first that may replay graphs
  std::vector<double> seconds, idle, enqueue;
  std::map<std::string, double> kinds;  // seconds of a step that each kind of op takes, when every launch is timed
  for (int s = 0; s < options.steps; ++s) {
    const double start = now_s();
    executor.run_step(inputs);
    seconds.push_back(now_s() - start);
    enqueue.push_back(static_cast<double>(executor.enqueue_ns()) * 1e-9);
    executor.set_trace(true);
    executor.run_step(inputs);
    executor.set_trace(false);
    std::vector<device::Span> spans = executor.stream(0).take_spans();
    int64_t busy = 0;
    for (const device::Span& span : spans) {
      const int64_t ns = span.end_ns - span.start_ns;
      busy += ns;
      kinds[std::string(lowered.program.listings[span.listing].ops[span.op_index].kind())] +=
          static_cast<double>(ns) * 1e-9 / options.steps;
    }
    idle.push_back(1 -
                   static_cast<double>(busy) / static_cast<double>(spans.back().end_ns - spans.front().start_ns));
  }
  const double step = median(seconds);
  return {{"layers", options.layers},
          {"preset", options.preset},
          {"tokens", all},
          {"seconds", step},
          {"tokens_per_s", all / step},
          {"flops", flops},
          {"flops_per_s", flops / step},
          {"idle_share", median(idle)},
          {"enqueue_seconds", median(enqueue)},
          {"graphs", options.graphs},
          {"fp8", options.fp8},
          {"kinds", kinds},
          {"memory",
           {{"predicted", predicted},
            {"reached", executor.walk().storage().reserved_bytes()},
            {"held", executor.held_bytes()},
            {"gone", free_before - device->memory_bytes()}}}};
}

void print(const bench::OpTime& op) {
  if (!op.refused.empty()) {
    std::printf("%-24s %s\n", op.name.c_str(), op.refused.c_str());
  } else if (op.multiplies()) {
    std::printf("%-24s %-16s %9.1f us  %7.1f TFLOP/s\n", op.name.c_str(), op.kernel.c_str(), op.seconds * 1e6,
                op.flops / op.seconds * 1e-12);
  } else {
    std::printf("%-24s %-16s %9.1f us  %7.3f of a copy, %6.0f GB/s\n", op.name.c_str(), op.kernel.c_str(),
                op.seconds * 1e6, op.share_of_copy, op.bytes / op.seconds * 1e-9);
  }
}

void print_step(const nlohmann::json& step) {
  std::printf("step of %d layers, %.0f tokens: %.1f ms, %.0f tokens/s, %.1f TFLOP/s; compute stream idle %.1f %%\n",
              step["layers"].get<int>(), step["tokens"].get<double>(), step["seconds"].get<double>() * 1e3,
              step["tokens_per_s"].get<double>(), step["flops_per_s"].get<double>() * 1e-12,
              100 * step["idle_share"].get<double>());
  std::vector<std::pair<double, std::string>> kinds;
  for (const auto& [kind, seconds] : step["kinds"].items()) kinds.emplace_back(seconds.get<double>(), kind);
  std::sort(kinds.rbegin(), kinds.rend());
  for (size_t i = 0; i < std::min<size_t>(kinds.size(), 12); ++i)
    std::printf("  %-32s %8.2f ms\n", kinds[i].second.c_str(), kinds[i].first * 1e3);
  constexpr double kMiB = 1 << 20;
  const nlohmann::json& memory = step["memory"];
  std::printf("enqueueing took the host %.1f ms\n", step["enqueue_seconds"].get<double>() * 1e3);
  std::printf("memory, MiB: predicted %.1f, reached %.1f, held by the arena %.1f, gone of the device %.1f\n",
              memory["predicted"].get<double>() / kMiB, memory["reached"].get<double>() / kMiB,
              memory["held"].get<double>() / kMiB, memory["gone"].get<double>() / kMiB);
}

}  // namespace

int heddle::bench::run(Arguments& arguments) {
  Options options;
  arguments.word("--ops", "all|none|NAME,…", options.ops);
  arguments.number("--step", options.step, 0);
  arguments.number("--repeats", options.repeats);
  arguments.number("--tokens", options.tokens);
  arguments.number("--layers", options.layers);
  arguments.number("--steps", options.steps);
  arguments.word("--preset", "NAME", options.preset);
  arguments.word("--backend", "NAME", options.backend, {"cuda", "host"});
  arguments.flag("--graphs", options.graphs);
  arguments.flag("--fp8", options.fp8);
  arguments.flag("--json", options.json);
  arguments.read();
  if (options.tokens > 4096 && options.tokens % 4096 != 0) {
    config_error("--tokens: {} is neither at most 4096 nor a multiple of it", options.tokens);
  }
  if (const Support there = device::cuda_available(); options.backend == "cuda" && !there) {
    std::fprintf(stderr, "bench_gpu: skipped: %s\n", there.reason.c_str());
    return 77;
  }
  nlohmann::json told{{"backend", options.backend}, {"ops", nlohmann::json::array()}};
  if (const std::vector<OpToTime> ops = chosen_ops(options.ops, options.tokens); !ops.empty()) {
    OpBench bench(options.backend, options.repeats);
    for (const OpToTime& op : ops) {
      const OpTime time = bench.time(op);
      if (!options.json) print(time);
      told["ops"].push_back({{"name", time.name},
                             {"kind", time.kind},
                             {"kernel", time.kernel},
                             {"seconds", time.seconds},
                             {"flops", time.flops},
                             {"bytes", time.bytes},
                             {"multiplies", time.multiplies()},
                             {"share_of_copy", time.share_of_copy},
                             {"refused", time.refused}});
      if (options.json) so_far(told.dump());
    }
  }
  if (options.step != 0) {
    told["step"] = step_of(options);
    if (!options.json) print_step(told["step"]);
  }
  if (options.json) std::printf("%s\n", told.dump().c_str());
  return 0;
}
