// Training steps of a DeepSeek-V3-style model on the CPU device, held against what the machine can do.
//
// Roofline efficiency of a step = (sum over its ops of max(FLOPs / matrix rate, least bytes / copy bandwidth)) /
// (its time); the median of the steps is reported. A step's rates are the means of two samples, taken right before
// and right after it: of our own best product of the type over large shapes, by whatever engine this processor has,
// and of a memcpy larger than the caches. So a processor that slows down for a while slows both sides. The table's
// bounds take the medians of all samples. An op whose operands lie in a cache can so exceed 100 %. The table lists
// op kinds by the time they lose to that bound. A shape file is one of torch_peer/shapes.
//
// enqueue_us_per_op is the host's own work for an op while the queue has work for the streams: what it waits for
// room in a full queue is left out. compute_starved_share is the compute stream's time with nothing to do, from the
// first op of a step to its last, over the step time.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "bench/support/main.h"
#include "bench/support/probe.h"
#include "bench/support/shape.h"
#include "bench/support/stops.h"
#include "heddle/backends/backend.h"
#include "heddle/base/clock.h"
#include "heddle/base/random.h"
#include "heddle/base/statistics.h"
#include "heddle/cost/machine_profile.h"
#include "heddle/device/host/host_memory.h"
#include "heddle/ir/print.h"
#include "heddle/plan/plan.h"
#include "heddle/runtime/executor.h"
#include "heddle/simulate/recording.h"
#include "heddle/train/parameters.h"
#include "tests/runtime/batch.h"

namespace {
using namespace heddle;
using nlohmann::ordered_json;

struct Options {
  bool json = false, detail = false, fusions = true;
  Dtype dtype = Dtype::bf16;
  std::string shape, backend = "host";
  int steps = 15, threads = 2;
  double seconds = 60;
  int64_t capacity_bytes = 0;
};

using bench::Shape;

Shape default_shape() {
  Shape shape;
  model::ModelConfig& m = shape.model;
  m.hidden_size = 512;
  m.num_hidden_layers = 4;
  m.intermediate_size = 1536;
  m.num_attention_heads = 8;
  m.kv_lora_rank = 128;
  m.qk_nope_head_dim = 64;
  m.qk_rope_head_dim = 32;
  m.v_head_dim = 64;
  m.n_routed_experts = 32;
  m.num_experts_per_tok = 4;
  m.moe_intermediate_size = 256;
  m.routed_scaling_factor = 2.5;
  return shape;
}

test::Batch random_batch(const Shape& shape, int step) {
  test::Batch batch;
  const RandomKey key = RandomKey(5).with(static_cast<uint64_t>(step));
  const int64_t width = shape.sequence + 1 + shape.model.num_nextn_predict_layers;
  uint64_t at = 0;
  for (int m = 0; m < shape.microbatches; ++m) {
    runtime::Microbatch& micro = batch.microbatches.emplace_back();
    for (int64_t i = 0; i < shape.sequences * width; ++i) {
      micro.tokens.push_back(static_cast<int32_t>(key.bits(at++) % static_cast<uint64_t>(shape.model.vocab_size)));
    }
  }
  const double sequences = static_cast<double>(shape.microbatches * shape.sequences);
  const double tokens = sequences * static_cast<double>(shape.sequence);
  batch.scales = {1 / tokens, 1 / sequences, 1 / tokens};
  batch.scales.resize(3 + static_cast<size_t>(shape.model.num_nextn_predict_layers), 0.3 / tokens);
  batch.hyper = {1e-4, 1 - std::pow(0.9, step + 1), 1 - std::pow(0.95, step + 1)};
  return batch;
}

// One line of the table: ops of a kind (and, in detail, of a shape).
struct Line {
  std::string name, kernel;
  int count = 0;  // in a step
  double flops = 0, bytes = 0;
  double bound_s = 0;
  std::vector<double> step_s;                                       // time in each step
  double time_s() const { return std::max(1e-9, median(step_s)); }  // of the clock
};

std::string name_of_line(const ir::Listing& listing, const ir::Op& op, bool detail) {
  if (!detail) return std::string(op.kind());
  const auto last = [&](const std::vector<ir::ValueId>& ids) {
    return ids.empty() || ids[0] == ir::none ? "" : " " + ir::text_of(listing, listing.value(ids[0]));
  };
  return std::string(op.kind()) + last(op.in) + (op.out.empty() ? last(op.updates) : last(op.out));
}

/// Packed weights read by an op for which the backend has no kernel as long as they are packed.
std::set<std::string> refused_packed(const ir::StepProgram& program, const std::string& backend) {
  std::set<std::string> refused;
  for (const ir::Listing& listing : program.listings) {
    for (const ir::Op& op : listing.ops) {
      if (op.def->stream != ir::StreamKind::compute) continue;
      try {
        backends::named(backend).select_kernel(listing, op);
      } catch (const InternalError&) {
        for (const ir::ValueId id : op.in) {
          if (id != ir::none && listing.value(id).layout == ir::Layout::packed)
            refused.insert(listing.value(id).name);
        }
      }
    }
  }
  return refused;
}

ordered_json measure(const Options& options) {
  const Shape shape = options.shape.empty() ? default_shape() : bench::read_shape(options.shape);
  plan::Plan plan;
  plan.microbatches = shape.microbatches;
  plan.sequences = shape.sequences;
  plan.sequence_length = shape.sequence;
  plan.dtype = options.dtype;
  if (!options.fusions) plan.fusions.clear();
  std::set<std::string> in_rows;  // weights that some kernel can't read packed
  plan.packed_bytes = [&](const ir::Value& weight) -> int64_t {
    return in_rows.contains(weight.name) ? 0 : backends::named(options.backend).packed_bytes(weight);
  };
  plan::Lowered lowered = plan::lower(shape.model, plan);
  for (const std::string& name : refused_packed(lowered.program, options.backend)) in_rows.insert(name);
  if (!in_rows.empty()) lowered = plan::lower(shape.model, plan);
  const ir::Listing& listing = lowered.program.listings[0];

  simulate::RecordOptions dry;
  dry.capacity_bytes = options.capacity_bytes > 0 ? options.capacity_bytes : device::host_memory_bytes();
  dry.scratch_bytes = [&](int s, uint32_t i, const ir::RowCounts& rows) -> int64_t {
    const ir::Listing& text = lowered.program.listings[static_cast<size_t>(s)];
    if (text.ops[i].def->stream != ir::StreamKind::compute) return 0;
    const kernels::KernelEntry& kernel = backends::named(options.backend).select_kernel(text, text.ops[i]);
    return kernel.scratch_bytes ? kernel.scratch_bytes(text, text.ops[i], rows) : 0;
  };
  dry.steps = options.steps;
  const simulate::Recording predicted = simulate::record(lowered.program, 0, dry);

  const bench::ResidentBytes resident_before = bench::resident_bytes();
  runtime::ExecutorOptions executor_options;
  executor_options.backend = options.backend;
  executor_options.threads = options.threads;
  executor_options.capacity_bytes = dry.capacity_bytes;
  runtime::Executor executor(lowered.program, executor_options);
  train::initialise(shape.model, lowered, executor, 1);
  const double first_begin = now_s();
  executor.run_step(test::inputs_of(random_batch(shape, 0), executor));
  const double first_step_s = now_s() - first_begin;
  const bench::ResidentBytes resident_after = bench::resident_bytes();

  bench::MatrixProbe matrix(options.dtype, options.threads);
  bench::CopyProbe copy(options.threads);
  device::Stream& compute = executor.stream(ir::StreamTable::compute);
  executor.set_trace(true);
  std::map<std::string, Line> lines;
  std::vector<double> step_s, starved, enqueue_us, in_ops;
  int64_t last_end_ns = 0, enqueued_ops = 0;
  const double begin = now_s();
  int measured = 0;
  for (int step = 1; step <= options.steps + 1; ++step) {
    const device::Inputs inputs = test::inputs_of(random_batch(shape, step), executor);
    matrix.sample();
    copy.sample();
    const double step_begin = now_s();
    executor.run_step(inputs);
    const double took = now_s() - step_begin;
    const std::vector<device::Span> spans = compute.take_spans();
    const device::StreamTimes times = compute.take_times();
    const int64_t idle_before_ns = spans.front().start_ns - last_end_ns;
    last_end_ns = spans.back().end_ns;
    if (step == 1) continue;  // its idle time is not known, and the probes came between it and the first
    ++measured;
    step_s.push_back(took);
    in_ops.push_back(static_cast<double>(times.busy_ns) * 1e-9 / took);
    starved.push_back(static_cast<double>(std::max<int64_t>(0, times.starved_ns - idle_before_ns)) * 1e-9 / took);
    enqueued_ops = executor.enqueued_ops();
    enqueue_us.push_back(static_cast<double>(executor.enqueue_ns()) * 1e-3 / static_cast<double>(enqueued_ops));
    std::map<std::string, double> time_s;
    for (const device::Span& span : spans) {
      time_s[name_of_line(listing, listing.ops[span.op_index], options.detail)] +=
          static_cast<double>(span.end_ns - span.start_ns) * 1e-9;
    }
    for (const auto& [name, s] : time_s) lines[name].step_s.push_back(s);
    bench::so_far(ordered_json{{"steps", measured}, {"step_seconds", median(step_s)}}.dump(2));
    if (now_s() - begin > options.seconds && measured >= 3) break;
  }
  matrix.sample();
  copy.sample();
  const ir::ValueId loss_id = listing.find("loss.next_token");
  const double tokens = static_cast<double>(shape.microbatches * shape.sequences * shape.sequence);
  const double loss = executor.view(0, loss_id).as<const double>()[0] / tokens;
  HEDDLE_CHECK(std::isfinite(loss), "the loss is {}", loss);

  cost::MachineProfile machine;
  machine.copy_bytes_per_s = copy.bytes_per_s();
  (options.dtype == Dtype::bf16 ? machine.bf16_flops_per_s : machine.f32_flops_per_s) = matrix.best_flops_per_s();
  double bound_s = 0, flops = 0;
  std::vector<ir::Cost> costs;
  for (const simulate::RecordedOp& recorded : predicted.ops) {
    const ir::Op& op = listing.ops[recorded.op];
    ir::Cost cost = op.def->cost(listing, op, ir::FixedRows());
    if (recorded.overwrite) {  // written, not read
      for (const ir::ValueId id : op.updates) cost.bytes -= static_cast<double>(listing.bytes(id, ir::FixedRows()));
    }
    costs.push_back(cost);
    const double op_s = 1e-6 * cost::roofline_us(machine, cost, options.dtype);
    Line& line = lines[name_of_line(listing, op, options.detail)];
    line.name = name_of_line(listing, op, options.detail);
    const kernels::KernelEntry* kernel = executor.kernel(0, recorded.op);
    const std::string by = kernel ? fmt::format("{}.{}", kernel->backend, kernel->name) : "comm";
    if (line.kernel.find(by) == std::string::npos) line.kernel += (line.kernel.empty() ? "" : " ") + by;
    ++line.count;
    line.flops += cost.flops;
    line.bytes += cost.bytes;
    line.bound_s += op_s;
    bound_s += op_s;
    flops += cost.flops;
  }
  const double step_time_s = median(step_s);
  std::vector<double> efficiency;
  for (size_t i = 0; i < step_s.size(); ++i) {
    // Sample 0 came before a step that was not measured.
    const auto around = [i](const std::vector<double>& rates) { return (rates[i + 1] + rates[i + 2]) / 2; };
    cost::MachineProfile then;
    then.copy_bytes_per_s = around(copy.rates());
    (options.dtype == Dtype::bf16 ? then.bf16_flops_per_s : then.f32_flops_per_s) = around(matrix.best_rates());
    double bound = 0;
    for (const ir::Cost& cost : costs) bound += 1e-6 * cost::roofline_us(then, cost, options.dtype);
    efficiency.push_back(bound / step_s[i]);
  }

  std::vector<Line> sorted;
  bool primitives = false;
  for (auto& [name, line] : lines) {
    primitives = primitives || line.kernel.find("onednn") != std::string::npos;
    sorted.push_back(line);
  }
  std::sort(sorted.begin(), sorted.end(),
            [](const Line& a, const Line& b) { return a.time_s() - a.bound_s > b.time_s() - b.bound_s; });

  ordered_json out;
  out["dtype"] = name_of(options.dtype);
  out["backend"] = options.backend;
  out["threads"] = options.threads;
  out["steps"] = measured;
  out["model"] = {{"hidden", shape.model.hidden_size},
                  {"layers", shape.model.num_hidden_layers},
                  {"experts", shape.model.n_routed_experts},
                  {"experts_a_token", shape.model.num_experts_per_tok},
                  {"expert_width", shape.model.moe_intermediate_size},
                  {"vocabulary", shape.model.vocab_size},
                  {"sequence", shape.sequence},
                  {"sequences", shape.sequences},
                  {"microbatches", shape.microbatches}};
  out["roofline_efficiency"] = median(efficiency);
  out["roofline_efficiency_least"] = *std::min_element(efficiency.begin(), efficiency.end());
  out["roofline_efficiency_most"] = *std::max_element(efficiency.begin(), efficiency.end());
  out["step_seconds"] = step_time_s;
  out["least_step_seconds"] = *std::min_element(step_s.begin(), step_s.end());
  out["first_step_seconds"] = first_step_s;
  out["bound_seconds"] = bound_s;
  out["tokens_per_second"] = tokens / step_time_s;
  out["model_flops_per_second"] = flops / step_time_s;
  out["matrix_flops_per_second"] = matrix.best_flops_per_s();
  out["matrix_shape"] = matrix.best_shape();
  out["copy_bytes_per_second"] = copy.bytes_per_s();
  out["loss"] = loss;
  out["ops"] = enqueued_ops;
  out["enqueue_us_per_op"] = median(enqueue_us);
  out["compute_in_ops_share"] = median(in_ops);
  out["compute_starved_share"] = median(starved);
  // Kernels of ours make no primitives; a kernel named onednn would have to say what its primitives cost.
  out["primitive_creation_share"] = primitives ? ordered_json(nullptr) : ordered_json(0);
  out["peak_predicted_bytes"] = predicted.peak_live_bytes;
  out["peak_measured_bytes"] = executor.walk().storage().peak_live_bytes();
  out["reserved_predicted_bytes"] = predicted.reserved_bytes;
  out["reserved_measured_bytes"] = executor.walk().storage().reserved_bytes();
  out["weights_left_in_rows"] = in_rows;
  out["persistent_bytes"] = predicted.persistent_bytes;
  out["process_growth_bytes"] = resident_after.most - resident_before.now;
  ordered_json& table = out["kinds"] = ordered_json::array();
  for (const Line& line : sorted) {
    table.push_back({{"kind", line.name},
                     {"kernel", line.kernel},
                     {"count", line.count},
                     {"ms", 1e3 * line.time_s()},
                     {"share", line.time_s() / step_time_s},
                     {"bound_ms", 1e3 * line.bound_s},
                     {"efficiency", line.bound_s / line.time_s()},
                     {"lost_ms", 1e3 * (line.time_s() - line.bound_s)},
                     {"gflops_per_s", 1e-9 * line.flops / line.time_s()},
                     {"gbytes_per_s", 1e-9 * line.bytes / line.time_s()}});
  }
  return out;
}

void print(const ordered_json& r) {
  const auto number = [](const ordered_json& j, const char* key) { return j.at(key).get<double>(); };
  std::printf(
      "%s on %s, %d threads, %d steps: %.1f ms a step (least %.1f), %.0f tokens/s, %.1f GFLOP/s, loss %.3f\n",
      r["dtype"].get<std::string>().c_str(), r["backend"].get<std::string>().c_str(), r["threads"].get<int>(),
      r["steps"].get<int>(), 1e3 * number(r, "step_seconds"), 1e3 * number(r, "least_step_seconds"),
      number(r, "tokens_per_second"), 1e-9 * number(r, "model_flops_per_second"), number(r, "loss"));
  std::printf("probes: %.1f GFLOP/s (%s), copy %.1f GB/s; bound %.1f ms: roofline efficiency %.3f (%.3f to %.3f)\n",
              1e-9 * number(r, "matrix_flops_per_second"), r["matrix_shape"].get<std::string>().c_str(),
              1e-9 * number(r, "copy_bytes_per_second"), 1e3 * number(r, "bound_seconds"),
              number(r, "roofline_efficiency"), number(r, "roofline_efficiency_least"),
              number(r, "roofline_efficiency_most"));
  std::printf("in ops %.1f %%, starved %.2f %%, %d ops, %.2f us to enqueue one\n",
              100 * number(r, "compute_in_ops_share"), 100 * number(r, "compute_starved_share"),
              r["ops"].get<int>(), number(r, "enqueue_us_per_op"));
  constexpr double kMiB = 1024.0 * 1024.0;
  std::printf("peak %.1f MiB predicted, %.1f measured; reserved %.1f predicted, %.1f measured; process grew %.1f\n",
              number(r, "peak_predicted_bytes") / kMiB, number(r, "peak_measured_bytes") / kMiB,
              number(r, "reserved_predicted_bytes") / kMiB, number(r, "reserved_measured_bytes") / kMiB,
              number(r, "process_growth_bytes") / kMiB);
  std::printf("%-30s %6s %9s %6s %9s %6s %9s %8s %7s  %s\n", "kind", "count", "ms", "share", "bound ms", "of it",
              "lost ms", "GFLOP/s", "GB/s", "kernel");
  for (const ordered_json& line : r["kinds"]) {
    std::printf("%-30s %6d %9.3f %5.1f%% %9.3f %5.0f%% %9.3f %8.1f %7.1f  %s\n",
                line["kind"].get<std::string>().c_str(), line["count"].get<int>(), number(line, "ms"),
                100 * number(line, "share"), number(line, "bound_ms"), 100 * number(line, "efficiency"),
                number(line, "lost_ms"), number(line, "gflops_per_s"), number(line, "gbytes_per_s"),
                line["kernel"].get<std::string>().c_str());
  }
}

}  // namespace

int heddle::bench::run(Arguments& arguments) {
  Options options;
  int64_t capacity_mib = 0;
  bool unfused = false;
  arguments.flag("--json", options.json);
  arguments.flag("--detail", options.detail);
  arguments.flag("--no-fusions", unfused);
  arguments.dtype("--dtype", options.dtype);
  arguments.word("--shape", "FILE", options.shape);
  arguments.word("--backend", "host|reference|cuda", options.backend, {"host", "reference", "cuda"});
  arguments.number("--steps", options.steps);
  arguments.number("--threads", options.threads);
  arguments.number("--seconds", options.seconds);
  arguments.number("--capacity-mib", capacity_mib);
  arguments.read();
  options.fusions = !unfused;
  options.capacity_bytes = capacity_mib << 20;
  const ordered_json result = measure(options);
  if (options.json) {
    std::printf("%s\n", result.dump(2).c_str());
  } else {
    print(result);
  }
  return 0;
}
