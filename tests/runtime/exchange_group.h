// The ranks of one MoE exchange as threads, op by op, in poisoned memory: each with its own tokens and choice.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <thread>

#include "heddle/backends/backend.h"
#include "heddle/base/random.h"
#include "heddle/comm/threads/thread_world.h"
#include "heddle/device/host_copies.h"
#include "heddle/device/routing_plan.h"
#include "heddle/device/value_view.h"
#include "heddle/kernels/registry.h"
#include "heddle/ops/ops.h"

namespace heddle::test {

// The exchange of the host, or that of devices in the emulator, which has no f64.
#ifdef HEDDLE_FIXTURES_ON_CUDA
constexpr const char* kExchangeBackend = "cuda";
constexpr Dtype kWidest = Dtype::f32;
#else
constexpr const char* kExchangeBackend = "host";
constexpr Dtype kWidest = Dtype::f64;
#endif

/// What every rank of a group has: `experts[p][t·k + j]` are global ids, increasing in j.
struct Routed {
  std::vector<int> node_of;
  int64_t slices = 1, experts_each = 1, top_k = 1, width = 1;
  std::vector<std::vector<int32_t>> experts;
  int64_t without = 0;  // further experts, to which no row goes

  int64_t ranks() const { return std::ssize(node_of); }
  int64_t all_experts() const { return ranks() / slices * experts_each; }
  int64_t tokens(int64_t p) const { return std::ssize(experts[static_cast<size_t>(p)]) / top_k; }
  int32_t expert(int64_t p, int64_t t, int64_t j) const {
    return experts[static_cast<size_t>(p)][static_cast<size_t>(t * top_k + j)];
  }
  bool on(int64_t rank, int64_t expert) const { return expert / experts_each == rank / slices; }
  int node(int64_t rank) const { return node_of[static_cast<size_t>(rank)]; }

  /// k distinct experts a token at random; `tokens` of each rank.
  static Routed random(std::vector<int> node_of, int64_t slices, int64_t experts_each, int64_t top_k, int64_t width,
                       const std::vector<int64_t>& tokens, uint64_t seed, int64_t without = 0) {
    Routed routed{std::move(node_of), slices, experts_each, top_k, width, {}, without};
    const RandomKey key(seed);
    uint64_t drawn = 0;
    for (int64_t p = 0; p < routed.ranks(); ++p) {
      std::vector<int32_t>& chosen = routed.experts.emplace_back();
      for (int64_t t = 0; t < tokens[static_cast<size_t>(p) % tokens.size()]; ++t) {
        std::vector<int32_t> ids(static_cast<size_t>(routed.all_experts() + without));
        for (size_t e = 0; e < ids.size(); ++e) ids[e] = static_cast<int32_t>(e);
        for (int64_t j = 0; j < top_k; ++j) {
          const auto other = static_cast<uint64_t>(j) + key.bits(drawn++) % (ids.size() - static_cast<uint64_t>(j));
          std::swap(ids[static_cast<size_t>(j)], ids[other]);
        }
        std::sort(ids.begin(), ids.begin() + top_k);
        chosen.insert(chosen.end(), ids.begin(), ids.begin() + top_k);
      }
    }
    return routed;
  }
};

/// One rank: its listing has the exchange's ops, in the order of the methods.
class ExchangeRank {
 public:
  ExchangeRank(const Routed& routed, int64_t rank, Dtype dtype, ir::Attributes attributes,
               comm::ThreadWorlds& thread_worlds)
      : routed_(routed),
        rank_(rank),
        dtype_(dtype),
        wide_(dtype == Dtype::f64 ? Dtype::f64 : Dtype::f32),
        attributes_(std::move(attributes)),
        world_(thread_worlds.world(static_cast<int>(rank))) {
    std::vector<int> all(static_cast<size_t>(routed.ranks()));
    for (size_t r = 0; r < all.size(); ++r) all[r] = static_cast<int>(r);
    communicator_ = world_->communicator(all, "comm.experts");
    experts_ = make(Dtype::i32, {tokens(), routed.top_k}, ir::Role::metadata);
    std::copy_n(routed.experts[static_cast<size_t>(rank)].data(), tokens() * routed.top_k, data<int32_t>(experts_));
  }
  int64_t tokens() const { return routed_.tokens(rank_); }

  void lists() {
    const auto counts = run("share_counts", {experts_});
    lists_ = run("counts_to_host", counts);
    for (size_t i = 0; i < lists_.size(); ++i) rows_.of[lists_[i]] = comm::counted_rows(i, view(lists_[i]));
    received = rows_.of[lists_[0]];
    topology = static_cast<ir::Topology>(data<int32_t>(lists_[1])[device::kRouteTopology]);
  }
  /// x[t, h], g[t, j] -> q, g of the rows.
  void dispatch(const std::function<double(int64_t, int64_t)>& x,
                const std::function<double(int64_t, int64_t)>& g) {
    x_ = filled(dtype_, tokens(), routed_.width, x);
    g_ = filled(wide_, tokens(), routed_.top_k, g);
    rows_out_ = run("dispatch", {x_, g_, experts_, lists_[0], lists_[1], lists_[2]});
  }
  /// e[s, h] of the received rows (and a residual) -> sums of the tokens.
  std::vector<double> combine(const std::function<double(int64_t, int64_t)>& e,
                              const std::function<double(int64_t, int64_t)>& residual = nullptr) {
    const ir::ValueId made = filled_received(dtype_, routed_.width, e);
    std::vector<ir::ValueId> in{made,      rows_out_[1], g_,           experts_,    lists_[0],
                                lists_[1], lists_[2],    rows_out_[2], rows_out_[3]};
    if (residual) in.push_back(filled(dtype_, tokens(), routed_.width, residual));
    return values(run("combine", in)[0]);
  }
  std::vector<double> combine_dgrad(const std::function<double(int64_t, int64_t)>& dc) {
    return values(run("combine_dgrad", {filled(dtype_, tokens(), routed_.width, dc), experts_, lists_[0], lists_[1],
                                        lists_[2], rows_out_[2], rows_out_[3]})[0]);
  }
  /// Gradients of x and of the gates.
  std::pair<std::vector<double>, std::vector<double>> dispatch_dgrad(
      const std::function<double(int64_t, int64_t)>& dq, const std::function<double(int64_t)>& dg) {
    const ir::ValueId rows = filled_received(dtype_, routed_.width, dq);
    ir::Value gates;
    gates.dtype = wide_;
    gates.shape = {{1, lists_[0]}};
    const ir::ValueId dg_S = add(std::move(gates));
    for (int64_t s = 0; s < received; ++s) set(dg_S, s, dg(s));
    const auto out =
        run("dispatch_dgrad", {rows, dg_S, experts_, lists_[0], lists_[1], lists_[2], rows_out_[2], rows_out_[3]});
    return {values(out[0]), values(out[1])};
  }

  std::vector<double> arrived() { return values(rows_out_[0]); }
  std::vector<double> arrived_gates() { return values(rows_out_[1]); }
  comm::Traffic traffic() const { return communicator_->traffic(); }

  int64_t received = 0;
  ir::Topology topology = ir::Topology::plain;

 protected:
  struct Rows : ir::RowCounts {
    int64_t rows(ir::ValueId value) const override { return of.at(value); }
    std::map<ir::ValueId, int64_t> of;
  };

  ir::ValueId add(ir::Value value) {
    value.name = fmt::format("value {}", listing_.values.size());
    const ir::ValueId id = listing_.add_value(std::move(value));
    place(id);
    return id;
  }
  void place(ir::ValueId id) {  // never a null pointer, and a guard behind
    memory_[id].assign(static_cast<size_t>(listing_.bytes(id, rows_)) + 64, std::byte{0xff});
  }
  ir::ValueId make(Dtype dtype, std::vector<int64_t> shape, ir::Role role = ir::Role::activation) {
    ir::Value value;
    value.dtype = dtype;
    value.role = role;
    for (const int64_t size : shape) value.shape.push_back({size, ir::none});
    return add(std::move(value));
  }
  ir::ValueId filled(Dtype dtype, int64_t rows, int64_t columns,
                     const std::function<double(int64_t, int64_t)>& of) {
    const ir::ValueId id = make(dtype, {rows, columns});
    for (int64_t i = 0; i < rows * columns; ++i) set(id, i, of(i / columns, i % columns));
    return id;
  }
  ir::ValueId filled_received(Dtype dtype, int64_t columns, const std::function<double(int64_t, int64_t)>& of) {
    ir::Value value;
    value.dtype = dtype;
    value.shape = {{1, lists_[0]}, {columns, ir::none}};
    const ir::ValueId id = add(std::move(value));
    for (int64_t i = 0; i < received * columns; ++i) set(id, i, of(i / columns, i % columns));
    return id;
  }
  template <class T>
  T* data(ir::ValueId id) {
    return reinterpret_cast<T*>(memory_.at(id).data());
  }
  void set(ir::ValueId id, int64_t i, double value) {
    switch (listing_.value(id).dtype) {
      case Dtype::f64: data<double>(id)[i] = value; break;
      case Dtype::f32: data<float>(id)[i] = static_cast<float>(value); break;
      default: data<bf16>(id)[i] = bf16(static_cast<float>(value));
    }
  }
  std::vector<double> values(ir::ValueId id) {
    std::vector<double> all;
    for (int64_t i = 0; i < listing_.elements(id, rows_); ++i) {
      switch (listing_.value(id).dtype) {
        case Dtype::f64: all.push_back(data<double>(id)[i]); break;
        case Dtype::f32: all.push_back(data<float>(id)[i]); break;
        default: all.push_back(static_cast<float>(data<bf16>(id)[i]));
      }
    }
    return all;
  }
  device::TensorView view(ir::ValueId id) {
    return device::view_of(listing_.value(id), memory_.at(id).data(), rows_);
  }
  std::vector<ir::ValueId> run(std::string_view kind, std::vector<ir::ValueId> in) {
    return run(kind, std::move(in), ops::find(kind).attributes.empty() ? ir::Attributes() : attributes_);
  }
  /// An op that computes runs on the reference. `updates` hold garbage where `overwrite`.
  std::vector<ir::ValueId> run(std::string_view kind, std::vector<ir::ValueId> in, ir::Attributes attributes,
                               std::vector<ir::ValueId> updates = {}, bool overwrite = false) {
    ir::Op op;
    op.def = &ops::find(kind);
    op.in = std::move(in);
    op.updates = std::move(updates);
    op.attributes = std::move(attributes);
    const auto outputs = op.def->infer(listing_, op).size();
    std::vector<std::string> names;
    for (size_t i = 0; i < outputs; ++i) names.push_back(fmt::format("{} {} {}", kind, i, listing_.values.size()));
    const std::vector<ir::ValueId> out = listing_.append(op, names);
    op = listing_.ops.back();
    std::vector<device::TensorView> in_views, out_views, updated_views;
    for (const ir::ValueId id : op.in) in_views.push_back(view(id));
    for (const ir::ValueId id : op.updates) updated_views.push_back(view(id));
    for (const ir::ValueId id : out) {
      place(id);
      out_views.push_back(view(id));
    }
    const comm::Collective* collective = backends::named(kExchangeBackend).find_collective(kind);
    const kernels::KernelEntry* kernel =
        collective == nullptr ? &backends::named("reference").select_kernel(listing_, op) : nullptr;
    const auto scratch_of = collective != nullptr ? collective->scratch_bytes : kernel->scratch_bytes;
    const int64_t scratch_bytes = scratch_of != nullptr ? scratch_of(listing_, op, rows_) : 0;
    std::vector<std::byte> scratch(static_cast<size_t>(scratch_bytes) + 64, std::byte{0xff});
    device::KernelCall call;
    call.op = &op;
    call.in = in_views;
    call.out = out_views;
    call.updates = updated_views;
    call.overwrite = overwrite;
    call.scratch = scratch.data();
    call.communicator = communicator_.get();
    call.row_work = backends::named(kExchangeBackend).row_work();
    if (!call.row_work->in_place) call.host_copies = &host_copies_;
    collective != nullptr ? collective->run(call) : kernel->run(call);
    for (const device::TensorView& made : out_views) {  // as the executor does at a host stall
      if (!op.def->host_stall || call.row_work->in_place) continue;
      const auto* first = made.as<const std::byte>();
      host_copies_.of(made.data).assign(first, first + made.elements() * size_of(made.dtype));
    }
    const auto guarded = [](const std::vector<std::byte>& bytes, int64_t used) {
      return std::all_of(bytes.begin() + used, bytes.end(), [](std::byte b) { return b == std::byte{0xff}; });
    };
    HEDDLE_CHECK(guarded(scratch, scratch_bytes), "{} writes beyond its scratch", kind);
    for (const ir::ValueId id : out) {
      HEDDLE_CHECK(guarded(memory_.at(id), listing_.bytes(id, rows_)), "{} writes beyond an output", kind);
    }
    return out;
  }

  const Routed& routed_;
  int64_t rank_;
  Dtype dtype_, wide_;
  ir::Attributes attributes_;
  std::unique_ptr<comm::World> world_;
  std::unique_ptr<comm::Communicator> communicator_;
  device::HostCopies host_copies_;  // where the host doesn't read what the ops have
  ir::Listing listing_;
  Rows rows_;
  std::map<ir::ValueId, std::vector<std::byte>> memory_;
  ir::ValueId experts_, x_ = ir::none, g_ = ir::none;
  std::vector<ir::ValueId> lists_, rows_out_;
};

inline ir::Attributes exchange_attributes(const Routed& routed, const std::string& topology,
                                          double across_rate = 100, double latency_us = 0) {
  return {{"ranks", routed.ranks()},         {"slices", routed.slices},
          {"experts", routed.all_experts()}, {"topology", topology},
          {"row_bytes", routed.width * 8},   {"sum_bytes", routed.width * 8},
          {"within_bytes_per_us", 1000.0},   {"across_bytes_per_us", across_rate},
          {"within_latency_us", latency_us}, {"across_latency_us", latency_us}};
}

/// Runs body(rank, p) for all ranks, each on a thread; rethrows what one threw.
inline void run_group(const Routed& routed, Dtype dtype, const ir::Attributes& attributes,
                      const std::function<void(ExchangeRank&, int64_t)>& body) {
  comm::ThreadWorlds thread_worlds(routed.node_of);
  std::vector<std::thread> threads;
  std::vector<std::exception_ptr> failures(routed.node_of.size());
  for (int64_t p = 0; p < routed.ranks(); ++p) {
    threads.emplace_back([&, p] {
      try {
        ExchangeRank rank(routed, p, dtype, attributes, thread_worlds);
        body(rank, p);
      } catch (const std::exception& error) {
        failures[static_cast<size_t>(p)] = std::current_exception();
        thread_worlds.abort(error.what());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& failure : failures) {
    if (failure) std::rethrow_exception(failure);
  }
}

}  // namespace heddle::test
