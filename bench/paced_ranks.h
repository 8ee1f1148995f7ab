// All ranks of a plan as threads in the paced mode: the real executor with its walk, streams, waits and
// collectives, which meet their group; each op lasts as long as it is said to, times a stretch, and does nothing,
// so that no page of the arenas is touched and models have their full widths. A busy machine wakes ranks late:
// `chrt -r 5` before the program helps.
#pragma once

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <thread>
#include <vector>

#include "bench/linked_device.h"
#include "heddle/comm/threads/thread_world.h"
#include "heddle/device/exchange_work.h"
#include "heddle/runtime/dry_run.h"
#include "tests/support/paced_time.h"
#include "tests/support/set_pace.h"

namespace heddle::bench {

/// The rows that each op with a host stall counts: received, and passing through.
using CountedRows = std::map<const ir::Op*, std::pair<int64_t, int64_t>>;
inline CountedRows& counted() {
  static CountedRows all;
  return all;
}
/// Puts those out, as if all ranks sent each other as many (comm/exchange/counts.cpp).
inline void put_balanced(const device::KernelCall& call) {
  const auto [rows, passing] = counted().at(call.op);
  for (const device::TensorView& out : call.out) std::memset(out.data, 0, static_cast<size_t>(bytes_of(out)));
  const device::TensorView& counts = call.out[0];
  counts.as<int32_t>()[counts.elements() / 2] = static_cast<int32_t>(rows);
  call.out[1].as<int32_t>()[device::kRoutePassing] = static_cast<int32_t>(passing);
  call.out[4].as<int32_t>()[0] = static_cast<int32_t>(rows);
}

// Every rank comes, and a byte goes to each.
inline void meet(const device::KernelCall& call) {
  const int ranks = call.communicator->size();
  std::vector<char> sent(static_cast<size_t>(ranks), 1), received(static_cast<size_t>(ranks));
  std::vector<comm::Piece> pieces;
  for (int r = 0; r < ranks; ++r) pieces.push_back({r, r, 1});
  call.communicator->exchange(sent.data(), pieces, received.data(), pieces);
}

// A byte goes to the neighbour, or comes from it.
inline int neighbour(const device::KernelCall& call) {
  return call.communicator->rank() + static_cast<int>(call.op->attributes.integer("step"));
}
inline void send_byte(const device::KernelCall& call) {
  const char byte = 1;
  call.communicator->send(&byte, 1, neighbour(call));
}
inline void receive_byte(const device::KernelCall& call) {
  char byte = 0;
  call.communicator->receive(&byte, 1, neighbour(call));
}

inline device::Kernel stand_in_for(const ir::Op& op) {
  if (op.def->host_stall) return put_balanced;
  if (op.def->moves == ir::Moves::to_neighbour) return send_byte;
  if (op.def->moves == ir::Moves::from_neighbour) return receive_byte;
  return op.def->collective ? meet : put_nothing;
}

/// All ranks of a plan at its full sizes, without its numbers. Experts get as many rows each. Forward and backward
/// only, unless the step is `whole`: else what is once a step takes no time.
class PacedRanks {
 public:
  /// Microseconds of an op.
  using LastsUs = std::function<double(int listing, uint32_t op)>;
  /// `free`: messages take no time. `lasts_us`: null for what the plan's durations say, or its rates.
  PacedRanks(const model::ModelConfig& config, const plan::Plan& plan, double stretch, bool free,
             LastsUs lasts_us = nullptr, bool whole = false)
      : PacedRanks(plan::lower(config, plan), plan, stretch, free, std::move(lasts_us), whole) {}
  /// Runs a program that was lowered for the plan.
  PacedRanks(plan::Lowered lowered, const plan::Plan& plan, double stretch, bool free, LastsUs lasts_us = nullptr,
             bool whole = false)
      : mesh_(plan.mesh),
        lowered_(std::move(lowered)),
        us_(std::move(lasts_us)),
        rates_(plan.rates),
        stretch_(stretch),
        free_(free),
        whole_(whole),
        board_(plan.ranks()) {
    if (!us_) {
      const passes::Durations us =
          plan.durations ? plan.durations : plan::nominal_durations(plan.parallel.exchange, plan.rates);
      us_ = [this, us](int listing, uint32_t op) {
        const ir::Listing& text = lowered_.program.listings[static_cast<size_t>(listing)];
        return us(text, text.ops[op]);
      };
    }
    std::map<int, runtime::MemoryPrediction> memory;  // of each class of ranks
    for (int r = 0; r < plan.ranks(); ++r) {
      const int of = lowered_.program.class_of_rank[static_cast<size_t>(r)];
      if (!memory.contains(of)) memory[of] = runtime::predict_memory(lowered_.program, r, "host");
      peak_bytes_ = std::max(peak_bytes_, memory[of].reserved_bytes);
      host_bytes_ = std::max(host_bytes_, memory[of].host_reserved_bytes);
    }
    const simulate::RowsRead rows = runtime::balanced_rows(lowered_.program);
    for (int r = 0; r < plan.ranks(); ++r) {
      worlds_.push_back(board_.world(r));
      communicators_.push_back(
          std::make_unique<runtime::MeshCommunicators>(*worlds_.back(), lowered_.program, mesh_));
      runtime::ExecutorOptions options;
      options.rank = r;
      options.place = mesh_.at(r);
      options.capacity_bytes = ir::storage_bytes(peak_bytes_ + peak_bytes_ / 16);
      options.host_capacity_bytes = ir::storage_bytes(host_bytes_ + host_bytes_ / 16 + 1);
      options.communicators = communicators_.back()->by_channel();
      executors_.push_back(std::make_unique<runtime::Executor>(lowered_.program, options));
      std::vector<std::vector<int64_t>> pace_ns(lowered_.program.listings.size());
      for (const int of_rank : lowered_.program.listings_of(r)) {
        const auto s = static_cast<size_t>(of_rank);
        const ir::Listing& listing = lowered_.program.listings[s];
        for (uint32_t i = 0; i < listing.ops.size(); ++i) {
          const ir::Op& op = listing.ops[i];
          pace_ns[s].push_back(static_cast<int64_t>(1e3 * stretch_ * lasts(of_rank, i)));
          if (op.def->host_stall) {
            ir::Issue issue;
            issue.listing = of_rank;
            issue.op = &op;
            counted()[&op] = {rows(r, issue, 0), rows(r, issue, 1)};
          }
          executors_.back()->replace(of_rank, i, stand_in_for(op));
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
    input.rows = runtime::balanced_rows(lowered_.program);
    input.duration_us = [&](int, const ir::Issue& issue) { return lasts(issue.listing, issue.op_index); };
    if (rates_.message_share > 0)
      input.takes = [&](int, const ir::Issue& issue) { return plan::units_taken(*issue.op, rates_); };
    return simulate::simulate(lowered_.program, input).step_us * 1e-3;
  }
  const ir::StepProgram& program() const { return lowered_.program; }
  /// The device's bytes on the rank that holds most.
  int64_t peak_bytes() const { return peak_bytes_; }

 private:
  double lasts(int listing, uint32_t at) const {
    const ir::Op& op = lowered_.program.listings[static_cast<size_t>(listing)].ops[at];
    if ((!whole_ && ir::once_a_step(op.phase)) || (free_ && ir::communicates(*op.def))) return 0;
    return us_(listing, at);
  }

  plan::Mesh mesh_;
  plan::Lowered lowered_;
  LastsUs us_;
  plan::DeviceRates rates_;
  double stretch_;
  bool free_, whole_;
  int64_t peak_bytes_ = 0, host_bytes_ = 0;
  comm::ThreadWorlds board_;
  std::vector<std::unique_ptr<comm::World>> worlds_;
  std::vector<std::unique_ptr<runtime::MeshCommunicators>> communicators_;
  std::vector<std::unique_ptr<runtime::Executor>> executors_;
  std::vector<double> ms_;
  double use_ = 0;
};

}  // namespace heddle::bench
