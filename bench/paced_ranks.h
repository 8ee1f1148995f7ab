// All ranks of a plan as threads in the paced mode: the real executor with its walk, streams, waits and
// collectives, which meet their group; each op lasts as long as it is said to, times a stretch, and does nothing,
// so that no page of the arenas is touched and models have their full widths. A busy machine wakes ranks late:
// `chrt -r 5` before the program helps.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "bench/linked_device.h"
#include "heddle/comm/threads/thread_world.h"
#include "tests/support/paced_time.h"
#include "tests/support/set_pace.h"

namespace heddle::bench {

// Every rank comes, and a byte goes to each.
inline void meet(const device::KernelCall& call) {
  const int ranks = call.communicator->size();
  std::vector<char> sent(static_cast<size_t>(ranks), 1), received(static_cast<size_t>(ranks));
  std::vector<comm::Piece> pieces;
  for (int r = 0; r < ranks; ++r) pieces.push_back({r, r, 1});
  call.communicator->exchange(sent.data(), pieces, received.data(), pieces);
}

/// All ranks of a plan at its full sizes, without its numbers. Forward and backward only: what is once a step takes
/// no time.
class PacedRanks {
 public:
  /// Microseconds of an op.
  using LastsUs = std::function<double(int listing, uint32_t op)>;
  /// `free`: messages take no time. `lasts_us`: null for what the plan's rates say.
  PacedRanks(const model::ModelConfig& config, const plan::Plan& plan, double stretch, bool free,
             LastsUs lasts_us = nullptr)
      : mesh_(plan.mesh),
        lowered_(plan::lower(config, plan)),
        us_(std::move(lasts_us)),
        rates_(plan.rates),
        stretch_(stretch),
        free_(free),
        board_(plan.ranks()) {
    if (!us_) {
      us_ = [this, us = plan::nominal_durations(plan.parallel.exchange, plan.rates)](int listing, uint32_t op) {
        const ir::Listing& text = lowered_.program.listings[static_cast<size_t>(listing)];
        return us(text, text.ops[op]);
      };
    }
    const int64_t bytes = runtime::predict_memory(lowered_.program, 0, "host").reserved_bytes;
    for (int r = 0; r < plan.ranks(); ++r) {
      worlds_.push_back(board_.world(r));
      communicators_.push_back(
          std::make_unique<runtime::MeshCommunicators>(*worlds_.back(), lowered_.program, mesh_));
      runtime::ExecutorOptions options;
      options.rank = r;
      options.place = mesh_.at(r);
      options.capacity_bytes = ir::storage_bytes(bytes + bytes / 16);
      options.host_capacity_bytes = 1;
      options.communicators = communicators_.back()->by_channel();
      executors_.push_back(std::make_unique<runtime::Executor>(lowered_.program, options));
      std::vector<std::vector<int64_t>> pace_ns;
      for (size_t s = 0; s < lowered_.program.listings.size(); ++s) {
        const ir::Listing& listing = lowered_.program.listings[s];
        pace_ns.emplace_back();
        for (uint32_t i = 0; i < listing.ops.size(); ++i) {
          const ir::Op& op = listing.ops[i];
          pace_ns.back().push_back(static_cast<int64_t>(1e3 * stretch_ * lasts(static_cast<int>(s), i)));
          executors_.back()->replace(static_cast<int>(s), i, op.def->collective ? meet : put_nothing);
        }
      }
      set_pace(*executors_.back(), pace_ns, rates_.message_share);
    }
  }

  void step(bool counts) {
    const PacedTimer timer;
    std::vector<std::thread> threads;
    for (auto& executor : executors_)
      threads.emplace_back([&] { executor->run_step(blank_inputs(executor->listing())); });
    for (std::thread& thread : threads) thread.join();
    const PacedTime took = timer.elapsed();
    use_ = std::max(use_, took.processor_use());
    if (counts) ms_.push_back(static_cast<double>(took.wall_ns) * 1e-6 / stretch_);
  }
  double ms() const { return median(ms_); }
  double use() const { return use_; }

  double predicted_ms() const {
    simulate::SimulationInput input;
    input.groups = simulate::groups_of(lowered_.program, mesh_);
    input.scratch_bytes = runtime::kernel_scratch(lowered_.program, "host");
    input.enqueue_us = 2 / stretch_;
    input.ranks_differ = false;
    input.duration_us = [&](int, const ir::Issue& issue) { return lasts(issue.listing, issue.op_index); };
    if (rates_.message_share > 0)
      input.takes = [&](int, const ir::Issue& issue) { return plan::units_taken(*issue.op, rates_); };
    return simulate::simulate(lowered_.program, input).step_us * 1e-3;
  }
  const ir::StepProgram& program() const { return lowered_.program; }

 private:
  double lasts(int listing, uint32_t at) const {
    const ir::Op& op = lowered_.program.listings[static_cast<size_t>(listing)].ops[at];
    if (ir::once_a_step(op.phase) || (free_ && ir::communicates(*op.def))) return 0;
    return us_(listing, at);
  }

  plan::Mesh mesh_;
  plan::Lowered lowered_;
  LastsUs us_;
  plan::DeviceRates rates_;
  double stretch_;
  bool free_;
  comm::ThreadWorlds board_;
  std::vector<std::unique_ptr<comm::World>> worlds_;
  std::vector<std::unique_ptr<runtime::MeshCommunicators>> communicators_;
  std::vector<std::unique_ptr<runtime::Executor>> executors_;
  std::vector<double> ms_;
  double use_ = 0;
};

}  // namespace heddle::bench
