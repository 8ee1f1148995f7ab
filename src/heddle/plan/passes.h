// The passes of lowering, a row each: docs/extending.md tells how to add one.
#pragma once

#include <string_view>
#include <vector>

#include "heddle/model/text/rank_text.h"
#include "heddle/plan/mesh.h"
#include "heddle/plan/plan.h"
#include "heddle/plan/shared_parameters.h"

namespace heddle::plan {

/// A program on its way: what the passes depend on, and what they change.
struct Draft {
  const model::ModelConfig& model;
  const Plan& plan;
  const Mesh& mesh;
  const schedule::Schedule& order;
  const passes::Durations& durations;
  ir::Purpose purpose = ir::Purpose::train;

  std::vector<model::RankText> texts;         // by pipeline rank; they move into the program once they are written
  SharedParameters shared;                    // what join_copies finds
  std::vector<std::vector<ir::Op>> restores;  // by pipeline rank: what update returns
  std::vector<ir::Listing> snapshots;         // by pipeline rank: what copies its state (passes/state/snapshot)
  ir::StepProgram& program;

  bool trains() const { return purpose == ir::Purpose::train; }
};

struct Pass {
  /// The level that it rewrites: the listings of the pipeline's ranks, or the blocks that the schedule makes of
  /// their ops.
  enum class Level : uint8_t { text, blocks };
  std::string_view name;
  std::string_view after;  // the names of those that must have run before, with spaces
  Level level = Level::text;
  bool (*wanted)(const Draft& draft) = nullptr;
  void (*run)(Draft& draft) = nullptr;
};

/// In the order in which they run.
const std::vector<Pass>& passes();

/// Runs the wanted passes of a level in order and verifies every text after each; InternalError names the pass that
/// left a wrong one. Stops after `until`, if that is not empty, and says so by returning true. Adds a note a pass.
bool run_passes(Draft& draft, Pass::Level level, std::string_view until, std::vector<PassNote>& notes);

}  // namespace heddle::plan
