// Heddle's side of the comparison with PyTorch: a training step on demand, in the line protocol of
// bench/torch_peer/peer.py, so that steps of both can alternate in one run.
//
//   bench_torch_step --shape bench/torch_peer/shapes/demo.json --dtype bf16 --threads 2 [--device cpu|cuda]
//
// A step is what a training step is: forward and backward of every microbatch, norm and clipping of the gradient,
// AdamW, and new kernel weights, on random tokens drawn before the clock starts. One object a line on standard
// output:
// {"ready": true, ...}, then for each line "step" {"seconds", "cpu_seconds", "loss"}; "quit" or the end of input
// ends it. Between steps every thread sleeps.

#include <ctime>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

#include "bench/support/main.h"
#include "bench/support/shape.h"
#include "heddle/backends/backend.h"
#include "heddle/base/clock.h"
#include "heddle/base/random.h"
#include "heddle/model/rope_table.h"
#include "heddle/plan/plan.h"
#include "heddle/runtime/executor.h"
#include "heddle/runtime/predict.h"
#include "tests/runtime/batch.h"

namespace heddle {
namespace {

using nlohmann::json;

struct Options {
  std::string shape, device = "cpu";
  Dtype dtype = Dtype::bf16;
  int threads = 1;
};

class Training {
 public:
  Training(const bench::Shape& shape, Dtype dtype, int threads, const std::string& backend) : config_(shape.model) {
    plan_.microbatches = shape.microbatches;
    plan_.sequences = shape.sequences;
    plan_.sequence_length = shape.sequence;
    plan_.dtype = dtype;
    plan_.packed_bytes = backends::named(backend).packed_bytes;
    lowered_ = plan::lower(config_, plan_);
    runtime::ExecutorOptions options;
    options.threads = threads;
    options.backend = backend;
    device_ = backends::named(backend).open({});
    options.device = device_.get();
    free_bytes_ = device_->memory_bytes();
    predicted_bytes_ =
        runtime::predict_memory(lowered_.program, 0, backend, device_->memory_bytes()).reserved_bytes;
    executor_ = std::make_unique<runtime::Executor>(lowered_.program, options);
    start_parameters();
    batch_.microbatches.resize(static_cast<size_t>(plan_.microbatches));
    const auto per_token = 1 / static_cast<double>(tokens());
    batch_.scales = {per_token, 1 / static_cast<double>(plan_.sequences * plan_.microbatches), per_token};
  }

  int64_t tokens() const { return plan_.microbatches * plan_.sequences * plan_.sequence_length; }
  int64_t parameters() const { return parameters_; }
  /// Of the program's ops but for what is computed again.
  double flops() const {
    double flops = 0;
    for (const ir::Op& op : listing().ops) {
      flops +=
          (ir::once_a_step(op.phase) ? 1 : plan_.microbatches) * op.def->cost(listing(), op, ir::FixedRows()).flops;
    }
    return flops;
  }
  /// Predicted before the run; what the arena holds; what is gone of the device's memory, libraries included.
  json memory() const {
    json told{{"predicted_bytes", predicted_bytes_},
              {"reserved_bytes", executor_->walk().storage().reserved_bytes()}};
    if (device_->shares_memory()) return told;
    told["held_bytes"] = executor_->held_bytes();
    told["gone_bytes"] = free_bytes_ - device_->memory_bytes();
    return told;
  }

  json step() {
    const int64_t ids = plan_.sequences * (plan_.sequence_length + 1);
    for (runtime::Microbatch& microbatch : batch_.microbatches) {
      microbatch.tokens.resize(static_cast<size_t>(ids));
      for (int32_t& id : microbatch.tokens) {
        id = static_cast<int32_t>(tokens_.bits(drawn_++) % static_cast<uint64_t>(config_.vocab_size));
      }
    }
    ++steps_;
    batch_.hyper = {1e-4, 1 - std::pow(0.9, steps_), 1 - std::pow(0.95, steps_)};
    const device::Inputs inputs = test::inputs_of(batch_, *executor_);
    const double cpu = cpu_seconds();
    const double start = now_s();
    executor_->run_step(inputs);
    const double wall = now_s() - start;
    const double loss = statistic("loss.next_token") / static_cast<double>(tokens());
    HEDDLE_CHECK(std::isfinite(loss), "the loss of step {} is {}", steps_, loss);
    return {{"seconds", wall}, {"cpu_seconds", cpu_seconds() - cpu}, {"loss", loss}};
  }

 private:
  const ir::Listing& listing() const { return lowered_.program.listings[0]; }
  double statistic(const std::string& name) const { return *executor_->view(0, listing().find(name)).as<double>(); }

  void start_parameters() {
    const std::vector<double> table = model::rope_table(config_, plan_.sequence_length);
    for (const model::Parameter& p : lowered_.parameters[0]) {
      const ir::ValueId master = listing().find("master." + p.name);
      const device::TensorView view = executor_->view(0, master == ir::none ? p.value : master);
      HEDDLE_CHECK(view.dtype == Dtype::f32, "'{}' has no fp32 master", p.name);
      if (p.trained) parameters_ += view.elements();
      const RandomKey key = RandomKey(7).with(p.name);
      for (int64_t i = 0; i < view.elements(); ++i) {
        double start = 0;
        switch (p.start) {
          case model::Parameter::Start::normal: start = p.deviation * key.normal(static_cast<uint64_t>(i)); break;
          case model::Parameter::Start::ones: start = 1; break;
          case model::Parameter::Start::zeros: break;
          case model::Parameter::Start::rope_table: start = table[static_cast<size_t>(i)]; break;
          case model::Parameter::Start::log_uniform:
          case model::Parameter::Start::time_step:
            internal_error("'{}' belongs to a recurrent layer, which no model of this bench has", p.name);
        }
        view.as<float>()[i] = static_cast<float>(start);
      }
      for (const char* moment : {"m.", "v."}) {
        const ir::ValueId id = listing().find(moment + p.name);
        if (id == ir::none) continue;
        const device::TensorView zeros = executor_->view(0, id);
        std::fill_n(zeros.as<float>(), zeros.elements(), 0.0f);
      }
    }
    executor_->make_weights();
  }

  static double cpu_seconds() {
    timespec now{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
  }

  model::ModelConfig config_;
  plan::Plan plan_;
  plan::Lowered lowered_;
  std::unique_ptr<device::Device> device_;
  int64_t free_bytes_ = 0, predicted_bytes_ = 0;
  std::unique_ptr<runtime::Executor> executor_;
  test::Batch batch_;
  RandomKey tokens_{11};
  uint64_t drawn_ = 0;
  int steps_ = 0;
  int64_t parameters_ = 0;
};

void say(const json& object) { std::cout << object.dump() << std::endl; }

void serve(const Options& options) {
  if (options.shape.empty()) config_error("--shape FILE is needed");
  const double start = now_s();
  Training training(bench::read_shape(options.shape), options.dtype, options.threads,
                    options.device == "cpu" ? "host" : options.device);
  for (int i = 0; i < 3; ++i) training.step();
  const double warm_up = now_s() - start;
  json facts{{"ready", true},
             {"peer", "heddle"},
             {"dtype", name_of(options.dtype)},
             {"threads", options.threads},
             {"parameters", training.parameters()},
             {"tokens_per_step", training.tokens()},
             {"flops_per_step", training.flops()},
             {"warm_up_seconds", warm_up}};
  facts.update(training.memory());
  say(facts);
  for (std::string line; std::getline(std::cin, line) && line != "quit";) {
    if (line != "step") config_error("unknown command '{}'; accepted are step and quit", line);
    say(training.step());
  }
}

}  // namespace

// What goes wrong is told to the peer that asks, which reads standard output.
int bench::run(Arguments& arguments) {
  Options options;
  arguments.word("--shape", "FILE", options.shape);
  arguments.dtype("--dtype", options.dtype);
  arguments.number("--threads", options.threads);
  arguments.word("--device", "cpu|cuda", options.device, {"cpu", "cuda"});
  arguments.read();
  try {
    serve(options);
  } catch (const std::exception& error) {
    say({{"error", error.what()}});
    throw;
  }
  return 0;
}

}  // namespace heddle
