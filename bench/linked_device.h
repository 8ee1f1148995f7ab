// Devices with the link to the memory of their host, stated, and one rank's program on one of them in the paced
// mode: the real executor with its walk, arenas, streams and waits, at the model's full size, where each op lasts
// as long as the device would take and does nothing. No page of the arenas is ever touched, so that neither memory
// nor cores of this machine matter; copies have a stream each way and the link's rate each way.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "bench/blank_inputs.h"
#include "bench/paced_run.h"
#include "heddle/plan/costs/durations.h"
#include "heddle/runtime/dry_run.h"
#include "heddle/runtime/predict.h"
#include "heddle/simulate/simulate.h"
#include "tests/support/set_pace.h"

namespace heddle::bench {

struct LinkedDevice {
  const char* name;
  double tflops;     // rated, bf16 products
  double memory_GB;  // a second
  double link_GB;    // a second, each way
};
/// Rated by their vendors; the last one's link is a die's share of the super-node's, over which it reaches the
/// pooled memory of the hosts.
constexpr LinkedDevice kLinkedDevices[] = {{"H100 with PCIe Gen 5", 989, 3350, 55},
                                           {"GH200", 989, 4000, 450},
                                           {"Ascend 910C super-node", 353.9, 1600, 196}};
/// What steps get of what is rated.
constexpr double kProductsAttained = 0.4, kMemoryAttained = 0.8;

inline plan::DeviceRates rates_of(const LinkedDevice& device) {
  plan::DeviceRates rates;
  rates.flops_per_us = kProductsAttained * device.tflops * 1e6;
  rates.bytes_per_us = kMemoryAttained * device.memory_GB * 1e3;
  rates.host_bytes_per_us = device.link_GB * 1e3;
  return rates;
}

class LinkedRun {
 public:
  /// `stretch`: seconds here for one of the device's.
  LinkedRun(const model::ModelConfig& config, plan::Plan plan, double stretch)
      : plan_(std::move(plan)),
        lowered_(plan::lower(config, plan_)),
        durations_us_(plan::nominal_durations(plan_.parallel.exchange, plan_.rates)),
        stretch_(stretch) {
    HEDDLE_CHECK(plan_.ranks() == 1, "{} ranks on one device", plan_.ranks());
    memory_ = runtime::predict_memory(lowered_.program, 0, "host");
  }

  const plan::Plan& plan() const { return plan_; }
  /// As foretold; `measured_bytes` is the executor's, of the last step.
  const runtime::MemoryPrediction& memory() const { return memory_; }
  int64_t measured_bytes() const { return executor_->walk().storage().peak_live_bytes(); }
  int64_t copied_bytes() const {
    return executor_->walk().copied_in_bytes() + executor_->walk().copied_out_bytes();
  }

  double predicted_s() const {
    simulate::SimulationInput input;
    input.scratch_bytes = runtime::kernel_scratch(lowered_.program, "host");
    input.capacity_bytes = capacity_bytes();
    input.enqueue_us = kEnqueueUs / stretch_;
    input.steps = 2;
    input.duration_us = [&](int, const ir::Issue& issue) {
      return durations_us_(lowered_.program.listings[static_cast<size_t>(issue.listing)], *issue.op);
    };
    return simulate::simulate(lowered_.program, input).step_us * 1e-6;
  }

  void step(bool counts) {
    if (!executor_) start();
    const double began = now_s();
    executor_->run_step(inputs_);
    if (counts) seconds_.push_back((now_s() - began) / stretch_);
  }
  /// Of the device, median.
  double seconds() const { return median(seconds_); }

  /// While the state streams through its slots, from the first update to the last: the share of the time that the
  /// busier and the less busy direction of the link was in use. 0 where nothing streams.
  double link_use() {
    executor_->set_trace(true);
    executor_->run_step(inputs_);
    executor_->set_trace(false);
    const std::vector<std::string>& names = executor_->walk().streams().names();
    int64_t first = INT64_MAX, last = 0;
    std::vector<std::vector<device::Span>> copies;
    for (size_t i = 0; i < names.size(); ++i) {
      std::vector<device::Span> spans = executor_->stream(static_cast<int>(i)).take_spans();
      for (const device::Span& span : spans) {
        const ir::Op& op = op_of(span);
        if (op.def->by_element.empty() || op.phase != ir::Phase::end) continue;
        first = std::min(first, span.start_ns);
        last = std::max(last, span.end_ns);
      }
      // Tokens come in over the same stream, first.
      if (!spans.empty() && ir::is_copy(op_of(spans.back()).def->moves)) copies.push_back(std::move(spans));
    }
    double least = copies.size() == 2 ? 1 : 0;
    for (const std::vector<device::Span>& spans : copies) {
      double busy = 0;
      for (const device::Span& span : spans)
        busy +=
            static_cast<double>(std::max<int64_t>(0, std::min(span.end_ns, last) - std::max(span.start_ns, first)));
      least = std::min(least, busy / static_cast<double>(last - first));
    }
    return least;
  }

 private:
  static constexpr double kEnqueueUs = 2;
  int64_t capacity_bytes() const { return ir::storage_bytes(memory_.reserved_bytes + memory_.reserved_bytes / 16); }
  const ir::Op& op_of(const device::Span& span) const {
    return lowered_.program.listings[static_cast<size_t>(span.listing)].ops[span.op_index];
  }

  void start() {
    runtime::ExecutorOptions options;
    options.capacity_bytes = capacity_bytes();
    options.host_capacity_bytes =
        std::max<int64_t>(memory_.host_reserved_bytes + memory_.host_reserved_bytes / 16, 1);
    executor_ = std::make_unique<runtime::Executor>(lowered_.program, options);
    std::vector<std::vector<int64_t>> pace_ns;
    for (size_t s = 0; s < lowered_.program.listings.size(); ++s) {
      const ir::Listing& listing = lowered_.program.listings[s];
      pace_ns.emplace_back();
      for (uint32_t i = 0; i < listing.ops.size(); ++i) {
        const ir::Op& op = listing.ops[i];
        pace_ns.back().push_back(op.def->drops ? 0
                                               : static_cast<int64_t>(durations_us_(listing, op) * 1e3 * stretch_));
        executor_->replace(static_cast<int>(s), i, put_nothing);
      }
    }
    set_pace(*executor_, pace_ns);
    inputs_ = blank_inputs(executor_->listing());
  }

  plan::Plan plan_;
  plan::Lowered lowered_;
  passes::Durations durations_us_;
  double stretch_;
  runtime::MemoryPrediction memory_;
  std::unique_ptr<runtime::Executor> executor_;
  device::Inputs inputs_;
  std::vector<double> seconds_;
};

}  // namespace heddle::bench
