// The choices of a plan: each member is set by a row of plan/switches, or is a number beside one. A run's
// configuration contains it as it is; a plan adds what is computed from it.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "heddle/base/words.h"
#include "heddle/ir/product_way.h"
#include "heddle/model/context.h"
#include "heddle/model/dispatcher.h"
#include "heddle/model/objective.h"
#include "heddle/passes/options/adapters.h"
#include "heddle/passes/options/fp8.h"
#include "heddle/passes/options/fusions.h"
#include "heddle/passes/options/op_group.h"
#include "heddle/passes/options/optimizer.h"
#include "heddle/passes/options/shard.h"
#include "heddle/plan/mesh.h"
#include "heddle/plan/residency.h"

namespace heddle::plan {

/// The blocks that are rearranged so that communication runs beside computation.
enum class Weave : uint8_t {
  off,
  layers,  // each block alone
  pairs,   // those, and the schedule's fused pairs
};
constexpr auto words_of(Weave) {
  return std::to_array<Word<Weave>>({{Weave::off, "off"}, {Weave::layers, "layers"}, {Weave::pairs, "pairs"}});
}

/// The way in which tensor parallelism's collectives run beside the products that feed them, or wait for them.
enum class TpOverlap : uint8_t {
  off,
  tiles,     // both are cut into panels of rows
  fused,     // both are one op, piece by piece
  cheapest,  // where that makes a step shorter, by cost
};
constexpr auto words_of(TpOverlap) {
  return std::to_array<Word<TpOverlap>>({{TpOverlap::off, "off"},
                                         {TpOverlap::tiles, "tiles"},
                                         {TpOverlap::fused, "fused"},
                                         {TpOverlap::cheapest, "auto"}});
}

struct Parallel {
  std::string schedule = "1f1b";  // a name that schedule/generators knows, or a file
  int chunks = 0;                 // stages a rank where the schedule leaves it open; 0: its usual number
  int group = 0;                  // microbatches that an interleaved schedule takes at a time; 0: as many as ranks
  std::string layout = "even";    // of the layers on the stages (plan/layout)
  Weave weave = Weave::pairs;
  model::Context context = model::Context::gather;
  int context_inner = 0;       // of `hybrid` and `double_ring`: neighbours of cp in a run; 0: as many as go
  model::Dispatcher exchange;  // of the experts' rows
  TpOverlap tp_overlap = TpOverlap::off;
  passes::Shard shard = passes::Shard::state;  // among the ranks that hold copies (passes/shard)
  int shard_ranks = 0;                         // that hold all of a weight together; 0: as many as there are
  std::vector<passes::OpGroup> sharded{passes::OpGroup{"all"}};  // what is cut beyond state, by part and layer
  int tp_panels = 0;        // of each product that is cut, or pieces of a rank's rows; 0: by rates
  bool reuse_lists = true;  // the counts of a MoE layer's rows go to the host once a microbatch, not four times
  double message_rate = 0;  // GB/s of a rank to others, for weaving; 0: as the exchange's links
  double message_latency_us = 0;  // likewise
  bool operator==(const Parallel&) const = default;
};

struct Memory : Residency {
  std::vector<passes::OpGroup> recompute;  // what the backward makes again
  std::vector<passes::OpGroup> offload;    // what waits for the backward on the host
  int64_t budget_bytes = 0;                // of a rank's device, whatever the router does; 0: none
  double budget_share = 0;                 // instead: of the device's memory, up to 1
  double crowding = 0;                     // that this holds for: times the even share of rows; 0: for any routing
  double host_rate = 0;                    // GB/s between device and host; 0: usual for the backend
  double update_rate = 0;                  // GB/s of the host's processor to its memory, likewise
  bool has_budget() const { return budget_bytes > 0 || budget_share > 0; }
  bool operator==(const Memory&) const = default;
};

/// The engine that moves the bytes of messages between ranks that reach each other's memory.
enum class CopyEngine : uint8_t {
  off,       // the transport, on the units that compute
  wherever,  // the engine, where there is one that takes nothing from computing that messages don't
  on,        // the engine
};
constexpr auto words_of(CopyEngine) {
  return std::to_array<Word<CopyEngine>>(
      {{CopyEngine::off, "off"}, {CopyEngine::wherever, "auto"}, {CopyEngine::on, "on"}});
}

/// Joining of the ops that the end of a step runs on each parameter: one op for many parameters, or not.
enum class JoinUpdates : uint8_t {
  off,
  wherever,  // where a launch costs the backend more than it does to issue an op
  on,
};
constexpr auto words_of(JoinUpdates) {
  return std::to_array<Word<JoinUpdates>>(
      {{JoinUpdates::off, "off"}, {JoinUpdates::wherever, "auto"}, {JoinUpdates::on, "on"}});
}

/// The choices of how the program runs on its device.
struct OnDevice {
  bool pack_weights = true;  // where the backend has a packed form
  bool graphs = false;       // repeated launches as CUDA graphs
  double product_rate = 0;   // GFLOP/s, that weaving and offload assume; 0: usual for the backend
  double memory_rate = 0;    // GB/s, likewise
  passes::Fp8 fp8 = passes::Fp8::off;
  passes::Fp8Weights fp8_weights = passes::Fp8Weights::step;
  ProductWay expert_product = ProductWay::cheapest;  // of products over groups
  std::string product_ways;  // what the ways of these take (cost::WayRates); "": usual for the backend
  CopyEngine copy_engine = CopyEngine::off;
  JoinUpdates join_updates = JoinUpdates::wherever;
  double copy_engine_kb = 0;  // of a message, from which it uses the engine; 0: as measured, else usual
  double message_share = 0;   // of a device's units that a message takes while the transport moves it
  bool operator==(const OnDevice&) const = default;
};

struct Choices {
  Degrees mesh;
  Parallel parallel;
  Memory memory;
  OnDevice device;
  std::set<std::string> fusions{passes::fusion_names().begin(), passes::fusion_names().end()};
  passes::Optimizer update;
  passes::Adapters lora;
  model::Objective objective;
  bool exact_sums = false;     // weight gradients that no layout changes (passes/exact_sums)
  int64_t snapshot_every = 0;  // steps between copies of the state in memory (passes/state/snapshot); 0: never
  bool operator==(const Choices&) const = default;
};

}  // namespace heddle::plan
