// What of a plan is chosen: each member is set by a row of plan/switches, or is a number beside one. A run's
// configuration contains it as it is; a plan adds what is worked out.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "heddle/base/words.h"
#include "heddle/ir/product_way.h"
#include "heddle/model/context.h"
#include "heddle/model/dispatcher.h"
#include "heddle/model/objective.h"
#include "heddle/passes/adapters.h"
#include "heddle/passes/products/fp8.h"
#include "heddle/passes/fuse.h"
#include "heddle/passes/op_groups.h"
#include "heddle/passes/update/update.h"
#include "heddle/plan/mesh.h"

namespace heddle::plan {

/// Which blocks are rearranged so that communication runs beside computation.
enum class Weave : uint8_t {
  off,
  layers,  // each block alone
  pairs,   // those, and the schedule's fused pairs
};
constexpr auto words_of(Weave) {
  return std::to_array<Word<Weave>>({{Weave::off, "off"}, {Weave::layers, "layers"}, {Weave::pairs, "pairs"}});
}

/// Whether tensor parallelism's collectives run beside the products that feed them or wait for them.
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
  model::Dispatcher exchange;  // of the experts' rows
  TpOverlap tp_overlap = TpOverlap::off;
  int tp_panels = 0;           // of each product that is cut, or pieces of a rank's rows; 0: by rates
  bool ahead_of_norm = false;  // stages update before the norm of all gradients is known
  bool reuse_lists = true;     // the counts of a MoE layer's rows go to the host once a microbatch, not four times
  double message_rate = 0;     // GB/s of a rank to others, for weaving; 0: as the exchange's links
  double message_latency_us = 0;  // likewise
  bool operator==(const Parallel&) const = default;
};

/// Where master weights and moments lie.
enum class StateHome : uint8_t {
  device,
  swap,      // on the host; slices stream through slots on the device
  mapped,    // moments on the host, where the update reads and writes them in place
  host,      // on the host, whose processor updates them; gradients go there, weights come back
  cheapest,  // on the device if they fit, else where the end of a step is shortest (plan/state_cost)
};
constexpr auto words_of(StateHome) {
  return std::to_array<Word<StateHome>>({{StateHome::device, "device"},
                                         {StateHome::swap, "swap"},
                                         {StateHome::mapped, "mapped"},
                                         {StateHome::host, "host"},
                                         {StateHome::cheapest, "auto"}});
}

/// What the master of a bf16 weight is kept as.
enum class MasterForm : uint8_t {
  full,   // fp32, beside the weight
  split,  // the weight itself, and the 16 bits that it lacks
};
constexpr auto words_of(MasterForm) {
  return std::to_array<Word<MasterForm>>({{MasterForm::full, "full"}, {MasterForm::split, "split"}});
}

struct Memory {
  std::vector<passes::OpGroup> recompute;  // what the backward makes again
  std::vector<passes::OpGroup> offload;    // what waits for the backward on the host
  StateHome optimizer = StateHome::device;
  MasterForm master = MasterForm::full;
  std::vector<passes::OpGroup> weights, gradients;  // which of them lie on the host (passes/host/home_words)
  int64_t budget_bytes = 0;                         // of a rank's device, whatever the router does; 0: none
  double budget_share = 0;                          // instead: of the device's memory, up to 1
  double crowding = 0;     // that this holds for: times the even share of rows; 0: for any routing
  double host_rate = 0;    // GB/s between device and host; 0: usual for the backend
  double update_rate = 0;  // GB/s of the host's processor to its memory, likewise
  bool has_budget() const { return budget_bytes > 0 || budget_share > 0; }
  bool operator==(const Memory&) const = default;
};

/// Who moves the bytes of messages between ranks that reach each other's memory.
enum class CopyEngine : uint8_t {
  off,       // the transport, on the units that compute
  wherever,  // the engine, where there is one that takes nothing from computing that messages don't
  on,        // the engine
};
constexpr auto words_of(CopyEngine) {
  return std::to_array<Word<CopyEngine>>(
      {{CopyEngine::off, "off"}, {CopyEngine::wherever, "auto"}, {CopyEngine::on, "on"}});
}

/// Whether what the end of a step does to each parameter is one op for many of them.
enum class JoinUpdates : uint8_t {
  off,
  wherever,  // where a launch costs the backend more than it does to issue an op
  on,
};
constexpr auto words_of(JoinUpdates) {
  return std::to_array<Word<JoinUpdates>>(
      {{JoinUpdates::off, "off"}, {JoinUpdates::wherever, "auto"}, {JoinUpdates::on, "on"}});
}

/// How the program runs where it runs.
struct OnDevice {
  bool pack_weights = true;  // where the backend has a packed form
  bool graphs = false;       // repeated launches as CUDA graphs
  double product_rate = 0;   // GFLOP/s, by which weaving and offload reckon; 0: usual for the backend
  double memory_rate = 0;    // GB/s, likewise
  passes::Fp8 fp8 = passes::Fp8::off;
  ProductWay expert_product = ProductWay::cheapest;  // of products over groups
  std::string product_ways;  // what the ways of these take (cost::WayRates); "": usual for the backend
  CopyEngine copy_engine = CopyEngine::off;
  JoinUpdates join_updates = JoinUpdates::wherever;
  double copy_engine_kb = 0;  // of a message, from which it goes by the engine; 0: as measured, else usual
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
