#include "heddle/planner/measure_ops.h"

#include <algorithm>
#include <mutex>

#include "heddle/backends/backend.h"
#include "heddle/base/crash_note.h"
#include "heddle/base/error.h"
#include "heddle/base/random.h"
#include "heddle/base/statistics.h"
#include "heddle/comm/collectives.h"
#include "heddle/comm/threads/thread_world.h"
#include "heddle/device/host/host_stream.h"
#include "heddle/ir/print.h"
#include "heddle/runtime/executor.h"
#include "heddle/runtime/microbatch.h"
#include "heddle/simulate/recording.h"

namespace heddle::planner {

namespace {

// The properties that tell ops apart.
using Key = std::tuple<std::string, Dtype, double, double, double, double, double, double>;
Key key_of(const cost::OpShape& s) { return {s.kind, s.dtype, s.rows, s.in, s.out, s.groups, s.flops, s.bytes}; }

struct Samples {
  cost::OpShape shape;
  std::vector<double> us;
};

// Notes each op of a program, with the shapes of what it reads, before its kernel is called.
class TimedOps : public ir::Walk::Watcher {
 public:
  TimedOps(runtime::Executor& executor, const ir::StepProgram& program) : walk_(executor.walk()) {
    texts_.resize(program.listings.size());
    for (const int s : program.listings_of(0)) {
      const ir::Listing& listing = program.listings[s];
      for (uint32_t i = 0; i < listing.ops.size(); ++i) {
        const kernels::KernelEntry* kernel = executor.kernel(s, i);
        texts_[s].push_back(text_of(listing, listing.ops[i], kernel == nullptr ? "" : kernel->name));
      }
    }
    walk_.watcher = this;
  }
  ~TimedOps() { walk_.watcher = nullptr; }
  TimedOps(const TimedOps&) = delete;
  TimedOps& operator=(const TimedOps&) = delete;

  void placed(int, ir::ValueId, int, int64_t) override {}
  void released(int, ir::ValueId, int, int64_t) override {}
  void issued(const ir::Issue& issue) override { note_.now_of(texts_[issue.listing][issue.op_index]); }

 private:
  static std::string text_of(const ir::Listing& listing, const ir::Op& op, std::string_view kernel) {
    std::string shapes;
    for (const ir::ValueId id : op.in) {
      if (id != ir::none) shapes += (shapes.empty() ? "" : ", ") + ir::text_of(listing, listing.value(id));
    }
    return fmt::format("{} by {} of {}", op.kind(), kernel, shapes);
  }

  ir::Walk& walk_;
  std::vector<std::vector<std::string>> texts_;  // [listing][op]
  CrashNote note_{"timing"};
};

std::vector<cost::OpTime> medians(const std::map<Key, Samples>& samples, int threads, double resident_bytes) {
  std::vector<cost::OpTime> times;
  for (const auto& [key, seen] : samples) {
    times.push_back({seen.shape, threads, resident_bytes, std::max(1e-3, median(seen.us))});
  }
  return times;
}

}  // namespace

std::vector<std::vector<int32_t>> random_sequences(const train::Trainer& trainer, uint64_t seed) {
  std::vector<std::vector<int32_t>> sequences;
  const RandomKey key = RandomKey(seed).with("sequences");
  uint64_t at = 0;
  for (int64_t i = 0; i < trainer.sequences_per_step(); ++i) {
    std::vector<int32_t>& ids = sequences.emplace_back();
    for (int64_t t = 0; t < trainer.sequence_tokens(); ++t) {
      ids.push_back(
          static_cast<int32_t>(key.bits(at++) % static_cast<uint64_t>(trainer.options().model.vocab_size)));
    }
  }
  return sequences;
}

StepMeasure measure_steps(const train::TrainerOptions& options, int steps) {
  train::Trainer trainer(options);
  trainer.initialise();
  runtime::Executor& executor = trainer.executor();
  const ir::StepProgram& program = trainer.lowered().program;
  std::map<std::tuple<int, uint32_t, int>, bool> overwrites;
  {
    simulate::RecordOptions dry;
    dry.rows = [](int, const ir::Issue&, size_t) { return 0; };
    for (const simulate::RecordedOp& op : simulate::record(program, 0, dry).ops) {
      overwrites[{op.listing, op.op, op.microbatch}] = op.overwrite;
    }
  }
  const std::vector<std::vector<int32_t>> sequences = random_sequences(trainer, options.seed);
  const TimedOps notes(executor, program);
  trainer.step(sequences);
  executor.set_trace(true);
  std::map<Key, Samples> samples;
  std::vector<double> step_us, between_us, enqueue_us;
  const ir::FixedRows no_rows;
  for (int step = 0; step < steps; ++step) {
    step_us.push_back(1e6 * trainer.step(sequences).seconds);
    enqueue_us.push_back(static_cast<double>(executor.enqueue_ns()) * 1e-3 /
                         static_cast<double>(std::max<int64_t>(1, executor.enqueued_ops())));
    const std::vector<device::Span> spans = executor.stream(ir::StreamTable::compute).take_spans();
    for (size_t i = 0; i < spans.size(); ++i) {
      const device::Span& span = spans[i];
      if (i > 0) between_us.push_back(static_cast<double>(span.start_ns - spans[i - 1].end_ns) * 1e-3);
      const ir::Listing& listing = program.listings[static_cast<size_t>(span.listing)];
      const cost::OpShape shape = cost::shape_of(listing, listing.ops[span.op_index], no_rows,
                                                 overwrites[{span.listing, span.op_index, span.microbatch}]);
      Samples& seen = samples[key_of(shape)];
      seen.shape = shape;
      seen.us.push_back(static_cast<double>(span.end_ns - span.start_ns) * 1e-3);
    }
  }
  if (samples.empty()) throw Error("the trace of a step has no ops: nothing is measured without it");
  const auto resident = static_cast<double>(executor.walk().storage().peak_live_bytes());
  // A device has no threads to choose: predictions ask for one.
  const int threads = backends::named(options.backend).shares_memory ? options.threads : 1;
  return {medians(samples, threads, resident), median(step_us), median(between_us), median(enqueue_us)};
}

std::vector<cost::OpTime> measure_rank_ops(const train::TrainerOptions& options, int runs) {
  if (!backends::named(options.backend).shares_memory) {
    config_error("device.backend is \"{}\": the ops of several ranks are measured on the CPU's kernels only",
                 options.backend);
  }
  const int ranks = options.plan.ranks();
  std::mutex turn;  // one op at a time on the whole machine
  std::map<Key, Samples> samples;
  double resident = 0;
  comm::run_on_threads(ranks, [&](comm::World& world) {
    train::Trainer trainer(options, &world);
    trainer.initialise();
    device::HostStream probe("profile", options.threads);
    probe.set_trace(true);
    const plan::Mesh& mesh = trainer.mesh();
    runtime::Executor& executor = trainer.executor();
    const ir::StepProgram& program = trainer.lowered().program;
    device::Inputs inputs(options.plan.microbatches);
    const RandomKey key =
        RandomKey(options.seed).with(static_cast<uint64_t>(mesh.at(world.rank()).at(ir::Axis::dp)));
    uint64_t at = 0;
    for (int m = 0; m < options.plan.microbatches; ++m) {
      runtime::Microbatch microbatch;
      for (int64_t i = 0; i < options.plan.sequences * trainer.sequence_tokens(); ++i) {
        microbatch.tokens.push_back(
            static_cast<int32_t>(key.bits(at++) % static_cast<uint64_t>(options.model.vocab_size)));
      }
      microbatch.references.assign(static_cast<size_t>(options.plan.sequences), 0);
      runtime::set_microbatch(inputs, m, microbatch, executor.listing(), executor.place());
    }
    const std::vector<double> scales(3 + static_cast<size_t>(options.model.num_nextn_predict_layers), 1e-4);
    runtime::set_scales(inputs, scales, executor.listing());
    inputs.set("hyper", std::array{0.0, 0.1, 0.05, 1e-3});
    if (program.takes("drawn_key")) inputs.set("drawn_key", runtime::drawn_key(options.seed, 0));
    const kernels::KernelEntry* kernel = nullptr;
    executor.run_step(inputs, [&](const ir::Issue& issue, const device::KernelCall& call) {
      const std::lock_guard alone(turn);
      kernel = trainer.executor().kernel(issue.listing, issue.op_index);
      if (kernel == nullptr || issue.op->def->stream != ir::StreamKind::compute) return;
      const cost::OpShape shape = cost::shape_of(program.listings[static_cast<size_t>(issue.listing)], *issue.op,
                                                 *issue.rows, issue.overwrite);
      Samples& seen = samples[key_of(shape)];
      if (std::ssize(seen.us) >= 4 * runs) return;
      seen.shape = shape;
      for (int i = 0; i <= runs; ++i) {
        device::Launch launch;
        launch.run = kernel->run;
        launch.call = call;
        probe.launch(launch);
      }
      probe.synchronize(0);
      const std::vector<device::Span> spans = probe.take_spans();
      for (size_t i = 1; i < spans.size(); ++i) {
        seen.us.push_back(static_cast<double>(spans[i].end_ns - spans[i].start_ns) * 1e-3);
      }
    });
    const std::lock_guard alone(turn);
    resident = std::max(resident, static_cast<double>(trainer.executor().walk().storage().peak_live_bytes()));
  });
  return medians(samples, options.threads, resident);
}

}  // namespace heddle::planner
