// The passes of lowering, a row each: docs/extending.md tells how to add one.
#pragma once

#include <string_view>
#include <vector>

#include "heddle/plan/draft.h"

namespace heddle::plan {

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
