// A small model run on thread ranks, for tests: parameters from a function, one step, every tensor at hand.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "heddle/comm/threads/thread_group.h"
#include "heddle/plan/plan.h"
#include "heddle/runtime/executor.h"

namespace heddle::test {

/// The ranks of a plan, each with its executor, on one thread each.
class TinyRun {
 public:
  TinyRun(const model::ModelConfig& config, const plan::Plan& plan, const std::string& backend, int64_t capacity,
          int threads = 1, bool poison = true)
      : plan_(plan), lowered_(plan::lower(config, plan)) {
    std::map<std::string, std::vector<int>> of;
    for (int r = 0; r < plan.ranks(); ++r) {
      of[fmt::format("comm.ep/{}", plan.stage_of(r))].push_back(r);
      of[fmt::format("comm.pp.forward/{}", plan.expert_rank_of(r))].push_back(r);
      of[fmt::format("comm.pp.backward/{}", plan.expert_rank_of(r))].push_back(r);
    }
    std::vector<std::map<std::string, comm::Communicator*>> communicators(static_cast<size_t>(plan.ranks()));
    for (const auto& [name, ranks] : of) {
      groups_.push_back(std::make_unique<comm::ThreadGroup>(static_cast<int>(ranks.size())));
      for (size_t i = 0; i < ranks.size(); ++i) {
        owned_.push_back(groups_.back()->communicator(static_cast<int>(i)));
        communicators[static_cast<size_t>(ranks[i])][name.substr(0, name.find('/'))] = owned_.back().get();
      }
    }
    for (int r = 0; r < plan.ranks(); ++r) {
      runtime::ExecutorOptions options;
      options.rank = r;
      options.backend = backend;
      options.threads = threads;
      options.capacity_bytes = capacity;
      options.communicators = communicators[static_cast<size_t>(r)];
      options.poison = poison;
      executors_.push_back(std::make_unique<runtime::Executor>(lowered_.program, options));
    }
  }

  const plan::Plan& plan() const { return plan_; }
  const plan::Lowered& lowered() const { return lowered_; }
  runtime::Executor& executor(int rank) { return *executors_[static_cast<size_t>(rank)]; }
  const ir::Stage& stage(int rank) const { return lowered_.program.stages[static_cast<size_t>(plan_.stage_of(rank))]; }

  /// Fills every parameter: value(name, global element index).
  void fill(const std::function<double(const model::Parameter&, int64_t)>& value) {
    for (int r = 0; r < plan_.ranks(); ++r) {
      const int s = plan_.stage_of(r);
      for (const model::Parameter& p : lowered_.parameters[static_cast<size_t>(s)]) {
        const device::TensorView view = executor(r).view(s, p.value);
        const int64_t first = p.experts > 0 ? plan_.expert_rank_of(r) * view.elements() : 0;
        for (int64_t i = 0; i < view.elements(); ++i) set(view, i, value(p, first + i));
      }
    }
  }

  void run(const std::vector<device::Batch>& batches) {
    std::vector<std::thread> threads;
    std::vector<std::exception_ptr> failures(executors_.size());
    for (size_t r = 0; r < executors_.size(); ++r) {
      threads.emplace_back([&, r] {
        try {
          executors_[r]->run_step(batches[r]);
        } catch (...) {
          failures[r] = std::current_exception();
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (const std::exception_ptr& failure : failures) {
      if (failure) std::rethrow_exception(failure);
    }
  }

  std::vector<double> read(int rank, const std::string& name) {
    const int s = plan_.stage_of(rank);
    const ir::ValueId id = stage(rank).find(name);
    HEDDLE_CHECK(id != ir::none, "no value '{}'", name);
    const device::TensorView view = executor(rank).view(s, id);
    std::vector<double> out;
    for (int64_t i = 0; i < view.elements(); ++i) out.push_back(get(view, i));
    return out;
  }

  static double get(const device::TensorView& view, int64_t i) {
    switch (view.dtype) {
      case Dtype::f64: return view.as<double>()[i];
      case Dtype::f32: return view.as<float>()[i];
      case Dtype::bf16: return view.as<bf16>()[i];
      default: return view.as<int32_t>()[i];
    }
  }
  static void set(const device::TensorView& view, int64_t i, double value) {
    switch (view.dtype) {
      case Dtype::f64: view.as<double>()[i] = value; break;
      case Dtype::f32: view.as<float>()[i] = static_cast<float>(value); break;
      case Dtype::bf16: view.as<bf16>()[i] = static_cast<float>(value); break;
      default: view.as<int32_t>()[i] = static_cast<int32_t>(value);
    }
  }

 private:
  plan::Plan plan_;
  plan::Lowered lowered_;
  std::vector<std::unique_ptr<comm::ThreadGroup>> groups_;
  std::vector<std::unique_ptr<comm::Communicator>> owned_;
  std::vector<std::unique_ptr<runtime::Executor>> executors_;
};

}  // namespace heddle::test
