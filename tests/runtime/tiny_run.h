// A small model run on one rank of a world, or on all ranks as threads, for tests: parameters from a function, one
// step, every tensor at hand.
#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "heddle/base/numbers/split_float.h"
#include "heddle/comm/threads/thread_world.h"
#include "heddle/model/parameter_layout.h"
#include "heddle/model/rope_table.h"
#include "heddle/ops/moment_byte.h"
#include "heddle/plan/plan.h"
#include "heddle/runtime/executor.h"
#include "heddle/runtime/mesh_communicators.h"
#include "tests/runtime/batch.h"
#include "tests/support/scratch_folder.h"

namespace heddle::test {

/// One rank of a plan with its executor.
class RankRun {
 public:
  RankRun(const plan::Plan& plan, const plan::Mesh& mesh, const plan::Lowered& lowered, comm::World& world,
          const std::string& backend, int64_t capacity, int threads = 1, bool poison = true, int64_t limit = 0,
          const std::string& shared_file = "")
      : mesh_(mesh), lowered_(lowered), rank_(world.rank()), communicators_(world, lowered.program, mesh) {
    runtime::ExecutorOptions options;
    options.rank = rank_;
    options.place = mesh.at(rank_);
    options.backend = backend;
    options.threads = threads;
    options.capacity_bytes = capacity;
    options.host_capacity_bytes = std::max(capacity, limit);
    options.limit_bytes = limit;
    if (plan.snapshot_every > 0 && shared_file.empty()) scratch_.emplace();
    options.shared_file = scratch_ ? *scratch_ / "shared" : shared_file;
    options.communicators = communicators_.by_channel();
    options.poison = poison;
    executor_ = std::make_unique<runtime::Executor>(lowered.program, options);
  }

  int rank() const { return rank_; }
  const ir::Coordinates& place() const { return mesh_.at(rank_); }
  runtime::Executor& executor() { return *executor_; }
  const runtime::MeshCommunicators& communicators() const { return communicators_; }
  int listing_index() const { return place().at(ir::Axis::pp); }
  const ir::Listing& listing() const { return lowered_.program.listings[static_cast<size_t>(listing_index())]; }
  const std::vector<model::Parameter>& parameters() const {
    return lowered_.parameters[static_cast<size_t>(listing_index())];
  }

  /// Where experts live, by layer, when state is written and read; to be what the batch says.
  void set_homes(std::map<int, std::vector<int32_t>> homes) { homes_ = std::move(homes); }

  /// Where a value of this rank lies in the whole parameter: all of the rank's part, or its run of a sharded state.
  std::vector<model::Extent> runs(const model::Parameter& p, const ir::Value& value) const {
    std::vector<int64_t> dims;
    for (const ir::Dim& dim : listing().value(p.value).shape) dims.push_back(dim.count);
    std::vector<model::Extent> runs = model::extents_of(p, dims, place());
    // A run of a single number looks as the whole.
    const bool single = value.role == ir::Role::optimizer && dims.size() == 1 && dims[0] == 1 &&
                        mesh_.group(p.replica_group, rank_).size() > 1;
    if (single || value.shape != listing().value(p.value).shape) {
      const bool as_used = value.role == ir::Role::accumulator || p.frozen;  // not as its owner's state
      const std::vector<int> group = mesh_.group(as_used && !p.within.empty() ? p.within : p.replica_group, rank_);
      const int64_t at = std::find(group.begin(), group.end(), rank_) - group.begin();
      runs = model::extents_within(runs, at * value.shape[0].count, value.shape[0].count);
    }
    const auto homes = homes_.find(p.layer);
    if (homes == homes_.end()) return runs;
    int64_t elements = 1;
    for (const int64_t dim : model::whole_dims(p, dims, place())) elements *= dim;
    return model::extents_at_homes(p, std::move(runs), elements, homes->second);
  }

  /// Fills every parameter, its master and its moments: value(parameter, element of the whole tensor).
  void fill(const std::function<double(const model::Parameter&, int64_t)>& value) {
    for (const model::Parameter& p : parameters()) {
      const bool splits = listing().find("rest." + p.name) != ir::none;
      for (const std::string prefix : {"", "master.", "average.", "copy.", "rest.", "m.", "v."}) {
        const ir::ValueId id = listing().find(prefix + p.name);
        if (id == ir::none || listing().value(id).layout == ir::Layout::packed) continue;
        if (listing().value(id).space == ir::Space::nowhere) continue;
        const device::TensorView view = executor_->view(listing_index(), id);
        const bool moment = prefix == "m." || prefix == "v.";
        if (model::is_unit_gain(p.name)) {
          for (int64_t i = 0; i < view.elements(); ++i) set(view, i, 1);
          continue;
        }
        if (p.start == model::Parameter::Start::rope_table) {
          const int64_t width = view.dim(1);
          if (p.name.starts_with(model::kEntryRopeTable)) {  // of whole sequences on every rank
            const int64_t tokens = std::stoll(p.name.substr(model::kEntryRopeTable.size()));
            for (int64_t i = 0; i < view.elements(); ++i)
              set(view, i, value(p, i / width * tokens * width + i % width));
            continue;
          }
          const int cp = place().of(ir::Axis::cp);
          const bool of_own = p.name == model::kOwnRopeTable;  // a part of what its tp group has
          const int64_t tp = of_own ? place().of(ir::Axis::tp) : 1, at = of_own ? place().at(ir::Axis::tp) : 0;
          for (int64_t i = 0; i < view.elements(); ++i) {
            const int64_t row =
                ir::position(at * view.dim(0) + i / width, view.dim(0) * cp * tp, place().at(ir::Axis::cp), cp);
            set(view, i, value(p, row * width + i % width));
          }
          continue;
        }
        for (const model::Extent& run : runs(p, listing().value(id))) {
          for (int64_t i = 0; i < run.count; ++i) {
            const double x = value(p, run.whole + i);
            const SplitFloat parts = split(static_cast<float>(x));
            if (prefix == "rest.") {
              view.as<uint16_t>()[run.local + i] = parts.low;
            } else {
              set(view, run.local + i, !moment ? x : splits && prefix == "v." && parts.up_at_half ? -0.0 : 0.0);
            }
          }
        }
      }
    }
    executor_->make_weights();
  }

  /// Adds to `sum` what this rank holds of a parameter, and to `holders` how many do: its gradient ("grad.") or a
  /// state
  /// ("", "master.", "m.", "v."). Both have the size of the whole tensor.
  void add_to_whole(const std::string& prefix, const std::string& name, std::vector<double>& sum,
                    std::vector<double>& holders) {
    for (const model::Parameter& p : parameters()) {
      if (p.name != name) continue;
      std::vector<ir::ValueId> ids;
      if (prefix == "grad.") {
        ids = listing().accumulators.at(p.value);
      } else {
        ids = {listing().find(prefix + name)};
        if (ids[0] == ir::none && prefix == "master.") ids = {p.value};
        if (const ir::ValueId rest = listing().find("rest." + name); rest != ir::none && prefix != "m.") {
          add_split(p, rest, prefix == "master.", sum, holders);
          continue;
        }
      }
      for (const ir::ValueId id : ids) {
        const device::TensorView view = executor_->view(listing_index(), id);
        for (const model::Extent& run : runs(p, listing().value(id))) {
          for (int64_t i = 0; i < run.count; ++i) {
            sum.at(static_cast<size_t>(run.whole + i)) +=
                view.dtype == Dtype::u8 ? moment(name, view, run.local + i) : get(view, run.local + i);
            ++holders[static_cast<size_t>(run.whole + i)];
          }
        }
      }
    }
  }
  /// A first moment that is kept in a byte.
  double moment(const std::string& name, const device::TensorView& bytes, int64_t i) {
    const device::TensorView v = executor_->view(listing_index(), listing().find("v." + name));
    return fp8::moment_of_byte(bytes.as<uint8_t>()[i], static_cast<float>(get(v, i)));
  }
  /// Of a split master, or of the second moment whose sign is the master's.
  void add_split(const model::Parameter& p, ir::ValueId rest, bool master, std::vector<double>& sum,
                 std::vector<double>& holders) {
    const ir::ValueId copy = listing().find("copy." + p.name), v = listing().find("v." + p.name);
    const device::TensorView low = executor_->view(listing_index(), rest),
                             nearest = executor_->view(listing_index(), copy == ir::none ? p.value : copy),
                             moment = executor_->view(listing_index(), v);
    for (const model::Extent& run : runs(p, listing().value(rest))) {
      for (int64_t i = run.local; i < run.local + run.count; ++i) {
        const double of_v = get(moment, i);
        const auto at = static_cast<size_t>(run.whole + i - run.local);
        sum.at(at) +=
            master ? joined({nearest.as<bf16>()[i], low.as<uint16_t>()[i], std::signbit(of_v)}) : std::abs(of_v);
        ++holders[at];
      }
    }
  }
  /// Elements of the whole tensor of a parameter of this rank's listing, or 0.
  int64_t whole_elements(const std::string& name) const {
    for (const model::Parameter& p : parameters()) {
      if (p.name != name) continue;
      std::vector<int64_t> dims;
      for (const ir::Dim& dim : listing().value(p.value).shape) dims.push_back(dim.count);
      int64_t product = 1;
      for (const int64_t size : model::whole_dims(p, dims, place())) product *= size;
      return product;
    }
    return 0;
  }

  std::vector<double> read(const std::string& name) {
    const ir::ValueId id = listing().find(name);
    HEDDLE_CHECK(id != ir::none, "no value '{}'", name);
    const device::TensorView view = executor_->view(listing_index(), id);
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
      case Dtype::u8: view.as<uint8_t>()[i] = static_cast<uint8_t>(value); break;
      default: view.as<int32_t>()[i] = static_cast<int32_t>(value);
    }
  }

 private:
  const plan::Mesh& mesh_;
  const plan::Lowered& lowered_;
  int rank_;
  runtime::MeshCommunicators communicators_;
  std::map<int, std::vector<int32_t>> homes_;
  std::optional<ScratchFolder> scratch_;  // for memory that outlives the process, where nobody names a file
  std::unique_ptr<runtime::Executor> executor_;
};

/// The ranks of a plan, on one thread each.
class TinyRun {
 public:
  using Edit = std::function<void(plan::Lowered&)>;
  /// `node_of`: the node that each rank stands for; empty: all one. `edit` changes the program before it runs;
  /// `shared_file` and the number of a rank name its memory that outlives the process.
  TinyRun(const model::ModelConfig& config, const plan::Plan& plan, const std::string& backend, int64_t capacity,
          int threads = 1, bool poison = true, std::vector<int> node_of = {}, int64_t limit = 0,
          const Edit& edit = {}, const std::string& shared_file = "")
      : plan_(plan), mesh_(plan.mesh), lowered_(plan::lower(config, plan)) {
    if (edit) edit(lowered_);
    node_of.resize(static_cast<size_t>(plan.ranks()), 0);
    thread_worlds_ = std::make_unique<comm::ThreadWorlds>(node_of);
    for (int r = 0; r < plan.ranks(); ++r) {
      worlds_.push_back(thread_worlds_->world(r));
      ranks_.push_back(std::make_unique<RankRun>(plan_, mesh_, lowered_, *worlds_.back(), backend, capacity,
                                                 threads, poison, limit,
                                                 shared_file.empty() ? "" : fmt::format("{}{}", shared_file, r)));
    }
  }

  const plan::Plan& plan() const { return plan_; }
  const plan::Mesh& mesh() const { return mesh_; }
  const plan::Lowered& lowered() const { return lowered_; }
  RankRun& at(int rank) { return *ranks_[static_cast<size_t>(rank)]; }
  const RankRun& at(int rank) const { return *ranks_[static_cast<size_t>(rank)]; }
  runtime::Executor& executor(int rank) { return at(rank).executor(); }
  const runtime::MeshCommunicators& communicators(int rank) { return at(rank).communicators(); }
  int listing_of(int rank) const { return mesh_.at(rank).at(ir::Axis::pp); }
  const ir::Listing& listing(int rank) const { return at(rank).listing(); }
  const std::vector<model::Parameter>& parameters(int rank) const { return at(rank).parameters(); }

  void fill(const std::function<double(const model::Parameter&, int64_t)>& value) {
    for (auto& rank : ranks_) rank->fill(value);
  }

  /// The sum over all ranks of what they hold of a parameter, element by element of the whole tensor: its gradient
  /// ("grad."), or the mean of the copies of a state (see RankRun::add_to_whole).
  std::vector<double> whole(const std::string& prefix, const std::string& name) {
    int64_t elements = 0;
    for (auto& rank : ranks_) elements = std::max(elements, rank->whole_elements(name));
    std::vector<double> sum(static_cast<size_t>(elements), 0.0), holders = sum;
    for (auto& rank : ranks_) rank->add_to_whole(prefix, name, sum, holders);
    for (size_t i = 0; i < sum.size() && prefix != "grad."; ++i) sum[i] /= holders[i];
    return sum;
  }

  /// The sum over all ranks of a statistic.
  double total(const std::string& name) {
    double sum = 0;
    for (int r = 0; r < plan_.ranks(); ++r) {
      if (listing(r).find(name) != ir::none) sum += read(r, name)[0];
    }
    return sum;
  }

  void run(const std::vector<Batch>& batches) {
    std::vector<std::thread> threads;
    std::vector<std::exception_ptr> failures(ranks_.size());
    for (size_t r = 0; r < ranks_.size(); ++r) {
      threads.emplace_back([&, r] {
        try {
          ranks_[r]->executor().run_step(inputs_of(batches[r], ranks_[r]->executor()));
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

  std::vector<double> read(int rank, const std::string& name) { return at(rank).read(name); }
  static double get(const device::TensorView& view, int64_t i) { return RankRun::get(view, i); }
  static void set(const device::TensorView& view, int64_t i, double value) { RankRun::set(view, i, value); }

 private:
  plan::Plan plan_;
  plan::Mesh mesh_;
  plan::Lowered lowered_;
  std::unique_ptr<comm::ThreadWorlds> thread_worlds_;
  std::vector<std::unique_ptr<comm::World>> worlds_;
  std::vector<std::unique_ptr<RankRun>> ranks_;
};

}  // namespace heddle::test
