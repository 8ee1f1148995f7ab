// A small model run on thread ranks, for tests: parameters from a function, one step, every tensor at hand.
#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "heddle/comm/threads/thread_world.h"
#include "heddle/model/parameter_layout.h"
#include "heddle/plan/plan.h"
#include "heddle/runtime/executor.h"
#include "heddle/runtime/mesh_communicators.h"

namespace heddle::test {

/// The ranks of a plan, each with its executor, on one thread each.
class TinyRun {
 public:
  /// `node_of`: the node that each rank stands for; empty: all one.
  TinyRun(const model::ModelConfig& config, const plan::Plan& plan, const std::string& backend, int64_t capacity,
          int threads = 1, bool poison = true, std::vector<int> node_of = {})
      : plan_(plan), mesh_(plan.mesh), lowered_(plan::lower(config, plan)) {
    node_of.resize(static_cast<size_t>(plan.ranks()), 0);
    board_ = std::make_unique<comm::ThreadBoard>(node_of);
    for (int r = 0; r < plan.ranks(); ++r) {
      worlds_.push_back(board_->world(r));
      communicators_.push_back(std::make_unique<runtime::MeshCommunicators>(*worlds_.back(), lowered_.program, mesh_));
      runtime::ExecutorOptions options;
      options.rank = r;
      options.place = mesh_.at(r);
      options.backend = backend;
      options.threads = threads;
      options.capacity_bytes = capacity;
      options.communicators = communicators_.back()->by_stream();
      options.poison = poison;
      executors_.push_back(std::make_unique<runtime::Executor>(lowered_.program, options));
    }
  }

  const plan::Plan& plan() const { return plan_; }
  const plan::Mesh& mesh() const { return mesh_; }
  const plan::Lowered& lowered() const { return lowered_; }
  runtime::Executor& executor(int rank) { return *executors_[static_cast<size_t>(rank)]; }
  const runtime::MeshCommunicators& communicators(int rank) { return *communicators_[static_cast<size_t>(rank)]; }
  int stage_of(int rank) const { return mesh_.at(rank).at(ir::Axis::pp); }
  const ir::Stage& stage(int rank) const { return lowered_.program.stages[static_cast<size_t>(stage_of(rank))]; }
  const std::vector<model::Parameter>& parameters(int rank) const {
    return lowered_.parameters[static_cast<size_t>(stage_of(rank))];
  }

  /// Where a value of this rank lies in the whole parameter: all of the rank's part, or its run of a sharded state.
  std::vector<model::Run> runs(int rank, const model::Parameter& p, const ir::Value& value) const {
    std::vector<int64_t> dims;
    for (const ir::Dim& dim : stage(rank).value(p.value).shape) dims.push_back(dim.count);
    std::vector<model::Run> runs = model::runs_of(p, dims, mesh_.at(rank));
    if (value.shape == stage(rank).value(p.value).shape) return runs;
    const std::vector<int> group = mesh_.group(p.copies, rank);
    const int64_t at = std::find(group.begin(), group.end(), rank) - group.begin();
    return model::runs_within(runs, at * value.shape[0].count, value.shape[0].count);
  }

  /// Fills every parameter, its master and its moments: value(parameter, element of the whole tensor).
  void fill(const std::function<double(const model::Parameter&, int64_t)>& value) {
    for (int r = 0; r < plan_.ranks(); ++r) {
      for (const model::Parameter& p : parameters(r)) {
        for (const char* prefix : {"", "master.", "copy.", "m.", "v."}) {
          const ir::ValueId id = stage(r).find(prefix + p.name);
          if (id == ir::none || stage(r).value(id).layout == ir::Layout::packed) continue;
          const device::TensorView view = executor(r).view(stage_of(r), id);
          const bool moment = prefix[0] == 'm' ? prefix[1] == '.' : prefix[0] == 'v';
          if (p.start == model::Parameter::Start::rope_table) {
            const int64_t width = view.dim(1);
            const ir::Coordinates& place = mesh_.at(r);
            const int cp = place.of(ir::Axis::cp);
            for (int64_t i = 0; i < view.elements(); ++i) {
              const int64_t row = ir::position(i / width, view.dim(0) * cp, place.at(ir::Axis::cp), cp);
              set(view, i, value(p, row * width + i % width));
            }
            continue;
          }
          for (const model::Run& run : runs(r, p, stage(r).value(id))) {
            for (int64_t i = 0; i < run.count; ++i) set(view, run.local + i, moment ? 0 : value(p, run.whole + i));
          }
        }
      }
      executor(r).make_weights();
    }
  }

  /// The sum over all ranks of what they hold of a parameter, element by element of the whole tensor: its gradient
  /// ("grad."), or a state of which each element has one holder or equal copies ("", "master.", "m.", "v."; copies are
  /// then averaged).
  std::vector<double> whole(const std::string& prefix, const std::string& name) {
    std::vector<double> sum;
    std::vector<int> holders;
    for (int r = 0; r < plan_.ranks(); ++r) {
      for (const model::Parameter& p : parameters(r)) {
        if (p.name != name) continue;
        std::vector<ir::ValueId> ids;
        if (prefix == "grad.") {
          ids = stage(r).accumulators.at(p.value);
        } else {
          ids = {stage(r).find(prefix + name)};
          if (ids[0] == ir::none && prefix == "master.") ids = {p.value};
        }
        for (const ir::ValueId id : ids) {
          const device::TensorView view = executor(r).view(stage_of(r), id);
          for (const model::Run& run : runs(r, p, stage(r).value(id))) {
            const auto needed = static_cast<size_t>(run.whole + run.count);
            if (sum.size() < needed) {
              sum.resize(needed, 0.0);
              holders.resize(needed, 0);
            }
            for (int64_t i = 0; i < run.count; ++i) {
              sum[static_cast<size_t>(run.whole + i)] += get(view, run.local + i);
              ++holders[static_cast<size_t>(run.whole + i)];
            }
          }
        }
      }
    }
    for (size_t i = 0; i < sum.size() && prefix != "grad."; ++i) sum[i] /= holders[i];
    return sum;
  }

  /// The sum over all ranks of a statistic.
  double total(const std::string& name) {
    double sum = 0;
    for (int r = 0; r < plan_.ranks(); ++r) {
      if (stage(r).find(name) != ir::none) sum += read(r, name)[0];
    }
    return sum;
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
    const int s = stage_of(rank);
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
  plan::Mesh mesh_;
  plan::Lowered lowered_;
  std::unique_ptr<comm::ThreadBoard> board_;
  std::vector<std::unique_ptr<comm::World>> worlds_;
  std::vector<std::unique_ptr<runtime::MeshCommunicators>> communicators_;
  std::vector<std::unique_ptr<runtime::Executor>> executors_;
};

}  // namespace heddle::test
