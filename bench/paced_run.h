// A program run step after step on the ranks of an MPI job in the paced mode, for benches that compare programs in
// one run: an op that computes lasts as long as on a device of the stated rate, asleep, so that ranks which share
// cores do not slow each other down; what goes between ranks is real. Where the arithmetic would keep the processor
// busy all the same (`stand_in`), ops that compute only sleep, and rows go where one real step has sent them.
#pragma once

#include <sys/resource.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "heddle/base/clock.h"
#include "heddle/base/random.h"
#include "heddle/base/statistics.h"
#include "heddle/comm/mpi_world.h"
#include "heddle/model/rope_table.h"
#include "heddle/plan/plan.h"
#include "heddle/runtime/executor.h"
#include "heddle/runtime/mesh_communicators.h"
#include "heddle/runtime/predict.h"
#include "tests/runtime/batch.h"
#include "tests/support/set_pace.h"

namespace heddle::bench {

inline double processor_seconds() {
  rusage use{};
  getrusage(RUSAGE_SELF, &use);
  return static_cast<double>(use.ru_utime.tv_sec + use.ru_stime.tv_sec) +
         1e-6 * static_cast<double>(use.ru_utime.tv_usec + use.ru_stime.tv_usec);
}

/// What every rank says, on every rank.
class Gather {
 public:
  explicit Gather(comm::World& world) {
    std::vector<int> ranks(static_cast<size_t>(world.size()));
    std::iota(ranks.begin(), ranks.end(), 0);
    group_ = world.communicator(ranks, "bench");
  }
  std::vector<double> operator()(double own) {
    const int n = group_->size();
    std::vector<double> all(static_cast<size_t>(n));
    std::vector<comm::Piece> sends, receives;
    for (int r = 0; r < n; ++r) {
      sends.push_back({r, 0, 8});
      receives.push_back({r, 8 * r, 8});
    }
    group_->exchange(&own, sends, all.data(), receives);
    return all;
  }
  double sum(double own) {
    const std::vector<double> all = (*this)(own);
    return std::accumulate(all.begin(), all.end(), 0.0);
  }
  double most(double own) {
    const std::vector<double> all = (*this)(own);
    return *std::max_element(all.begin(), all.end());
  }

 private:
  std::unique_ptr<comm::Communicator> group_;
};

/// What ops have put out, by op and microbatch, for `replay`.
using Recorded = std::map<std::pair<const ir::Op*, int>, std::vector<std::vector<std::byte>>>;
inline Recorded& recorded() {
  static Recorded all;
  return all;
}
inline int64_t bytes_of(const device::TensorView& view) { return view.elements() * size_of(view.dtype); }

inline void replay(const device::KernelCall& call) {
  const std::vector<std::vector<std::byte>>& values = recorded().at({call.op, call.microbatch});
  for (size_t i = 0; i < values.size(); ++i) {
    HEDDLE_CHECK(std::ssize(values[i]) == bytes_of(call.out[i]), "'{}' puts out {} bytes, {} in the step recorded",
                 call.op->kind(), bytes_of(call.out[i]), values[i].size());
    std::memcpy(call.out[i].data, values[i].data(), values[i].size());
  }
}
/// Numbers rather than what lay there: sums of denormals or NaN may take longer.
inline void put_zeros(const device::KernelCall& call) {
  for (const device::TensorView& out : call.out) std::memset(out.data, 0, static_cast<size_t>(bytes_of(out)));
}
inline void put_nothing(const device::KernelCall&) {}

/// One program, with all that a rank needs to run steps of it.
class PacedRun {
 public:
  /// `wrap` may put another communicator instead of a channel's; null: none.
  using Wrap = std::function<comm::Communicator*(const std::string& channel, comm::Communicator* own)>;
  PacedRun(const model::ModelConfig& config, plan::Plan plan, comm::World& world, const Wrap& wrap = nullptr)
      : config_(config),
        plan_(std::move(plan)),
        mesh_(plan_.mesh),
        lowered_(plan::lower(config, plan_)),
        rank_(world.rank()),
        communicators_(world, lowered_.program, mesh_) {
    runtime::ExecutorOptions options;
    options.rank = world.rank();
    options.place = mesh_.at(world.rank());
    options.communicators = communicators_.by_channel();
    for (auto& [channel, own] : options.communicators) own = wrap ? wrap(channel, own) : own;
    options.host_capacity_bytes = int64_t{1} << 30;
    options.capacity_bytes =
        std::max(options.host_capacity_bytes,
                 runtime::predict_memory(lowered_.program, world.rank(), "host").reserved_bytes * 5 / 4);
    executor_ = std::make_unique<runtime::Executor>(lowered_.program, options);
    fill();
    const RandomKey key = RandomKey(1).with(static_cast<uint64_t>(world.rank()));
    const int64_t width = plan_.sequences * (plan_.sequence_length + 1);
    test::Batch batch;
    for (int m = 0; m < plan_.microbatches; ++m) {
      runtime::Microbatch& micro = batch.microbatches.emplace_back();
      for (int64_t i = m * width; i < (m + 1) * width; ++i) {
        micro.tokens.push_back(
            static_cast<int32_t>(key.bits(static_cast<uint64_t>(i)) % static_cast<uint64_t>(config.vocab_size)));
      }
    }
    batch.scales.assign(3, 1e-4);
    batch.hyper = {0, 0.1, 0.05};  // weights stay as they are: every step does the same
    inputs_ = test::inputs_of(batch, *executor_);
  }

  const plan::Plan& plan() const { return plan_; }
  const ir::StepProgram& program() const { return lowered_.program; }
  const plan::Lowered& lowered() const { return lowered_; }
  runtime::Executor& executor() { return *executor_; }
  /// Of each step.
  device::Inputs& inputs() { return inputs_; }

  double step() {
    const double began = now_s();
    executor_->run_step(inputs_);
    return now_s() - began;
  }
  void look(const std::function<void(const ir::Issue&, const device::KernelCall&)>& at) {
    executor_->run_step(inputs_, at);
  }
  comm::Traffic traffic() const { return communicators_.traffic().at("comm.experts"); }

  /// Seconds of the last traced steps in ops that move the experts' rows.
  double exchange_seconds() {
    double sum = 0;
    const std::vector<std::string>& names = executor_->walk().streams().names();
    for (size_t i = 0; i < names.size(); ++i) {
      for (const device::Span& span : executor_->stream(static_cast<int>(i)).take_spans()) {
        const ir::Op& op = lowered_.program.listings[static_cast<size_t>(span.listing)].ops[span.op_index];
        if (op.kind().starts_with("dispatch") || op.kind().starts_with("combine"))
          sum += static_cast<double>(span.end_ns - span.start_ns) * 1e-9;
      }
    }
    return sum;
  }

  /// Arithmetic of the ops that compute, at balanced rows; an op without products counts its bytes as 30 each.
  double work(const ir::Listing& listing, const ir::Op& op) const {
    const int64_t rows = plan_.sequences * plan_.sequence_length * config_.num_experts_per_tok;
    const ir::Cost cost = op.def->cost(listing, op, ir::FixedRows(rows));
    return cost.flops + 30 * cost.bytes;
  }
  double work() const {
    double sum = 0;
    for (const ir::Listing& listing : lowered_.program.listings) {
      for (const ir::Op& op : listing.ops) {
        if (op.def->stream == ir::StreamKind::compute) sum += work(listing, op);
      }
    }
    return sum;
  }
  void pace(double work_per_s) {
    std::vector<std::vector<int64_t>> pace_ns;
    for (const ir::Listing& listing : lowered_.program.listings) {
      pace_ns.emplace_back();
      for (const ir::Op& op : listing.ops) {
        const bool computes = op.def->stream == ir::StreamKind::compute;
        pace_ns.back().push_back(computes ? static_cast<int64_t>(work(listing, op) / work_per_s * 1e9) : 0);
      }
    }
    pace_ns_ = pace_ns;
    set_pace(*executor_, pace_ns);
  }
  const std::vector<std::vector<int64_t>>& pace_ns() const { return pace_ns_; }

  /// Runs one real step and keeps what routes rows: the outputs of ops with whole numbers among them. From then on
  /// ops that compute put those out, zeros where others are sent them, or nothing.
  void stand_in() {
    const auto computes = [](const ir::Op& op) {
      return op.def->stream == ir::StreamKind::compute && !op.def->collective && !op.in.empty();
    };
    const auto routes = [](const ir::Listing& listing, const ir::Op& op) {
      return std::ranges::any_of(op.out, [&](ir::ValueId id) {
        return listing.value(id).dtype == Dtype::i32 || listing.value(id).dtype == Dtype::i64;
      });
    };
    look([&](const ir::Issue& issue, const device::KernelCall& call) {
      const ir::Listing& listing = lowered_.program.listings[static_cast<size_t>(issue.listing)];
      if (!computes(*call.op) || !routes(listing, *call.op)) return;
      std::vector<std::vector<std::byte>>& values = recorded()[{call.op, call.microbatch}];
      for (const device::TensorView& out : call.out) {
        values.emplace_back(out.as<std::byte>(), out.as<std::byte>() + bytes_of(out));
      }
    });
    for (const int s : lowered_.program.listings_of(rank_)) {
      const ir::Listing& listing = lowered_.program.listings[static_cast<size_t>(s)];
      std::vector<bool> sent(listing.values.size(), false);
      for (const ir::Op& op : listing.ops) {
        if (computes(op)) continue;
        for (const ir::ValueId id : op.in) {
          if (id != ir::none) sent[static_cast<size_t>(id)] = true;
        }
      }
      for (uint32_t i = 0; i < listing.ops.size(); ++i) {
        const ir::Op& op = listing.ops[i];
        if (!computes(op)) continue;
        const bool is_sent =
            std::ranges::any_of(op.out, [&](ir::ValueId id) { return sent[static_cast<size_t>(id)]; });
        executor_->replace(s, i, routes(listing, op) ? replay : is_sent ? put_zeros : put_nothing);
      }
    }
  }

 private:
  void fill() {
    const std::vector<double> table = model::rope_table(config_, plan_.sequence_length);
    using Start = model::Parameter::Start;
    const int s = lowered_.program.listing_of(rank_, ir::Purpose::train);
    const ir::Listing& listing = lowered_.program.listings[static_cast<size_t>(s)];
    std::map<std::string, Start> starts;  // moments have none
    for (const model::Parameter& p : lowered_.parameters.at(static_cast<size_t>(s))) {
      starts[p.name] = starts["master." + p.name] = p.start;
    }
    for (size_t v = 0; v < listing.values.size(); ++v) {
      const ir::Value& value = listing.values[v];
      const bool state = value.role == ir::Role::weight || value.role == ir::Role::optimizer;
      if (!state || value.layout == ir::Layout::packed || value.dtype == Dtype::bf16) continue;
      const device::TensorView view = executor_->view(s, static_cast<ir::ValueId>(v));
      const auto at = starts.find(value.name);
      const Start start = at == starts.end() ? Start::zeros : at->second;
      const RandomKey key = RandomKey(2).with(value.name);
      for (int64_t i = 0; i < view.elements(); ++i) {
        view.as<float>()[i] = start == Start::rope_table ? static_cast<float>(table[static_cast<size_t>(i)])
                              : start == Start::zeros    ? 0.0f
                              : start == Start::ones
                                  ? 1.0f
                                  : static_cast<float>(0.05 * key.normal(static_cast<uint64_t>(i)));
      }
    }
    executor_->make_weights();
  }

  model::ModelConfig config_;
  plan::Plan plan_;
  plan::Mesh mesh_;
  plan::Lowered lowered_;
  int rank_;
  runtime::MeshCommunicators communicators_;
  std::unique_ptr<runtime::Executor> executor_;
  device::Inputs inputs_;
  std::vector<std::vector<int64_t>> pace_ns_;
};

}  // namespace heddle::bench
