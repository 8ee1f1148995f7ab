// A pipeline schedule as data: for each rank the ordered computations on (stage, microbatch). Nothing about
// communication: that follows from the dependencies (schedule/lower).
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace heddle::schedule {

/// Forward, input gradient, weight gradient, or B: both gradients at once.
enum class Kind : uint8_t { F, I, W, B };
constexpr char letter_of(Kind kind) { return "FIWB"[static_cast<int>(kind)]; }

struct Compute {
  Kind kind = Kind::F;
  int stage = 0;
  int microbatch = 0;
  auto operator<=>(const Compute&) const = default;
};

/// One computation, or a fused pair: the forward of one microbatch and the backward (B or I) of another, woven.
struct Action {
  Compute first;
  std::optional<Compute> with;
  bool operator==(const Action&) const = default;

  std::vector<Compute> computes() const { return with ? std::vector{first, *with} : std::vector{first}; }
};

/// The rank that runs each stage. Stages 0 … stages−1 are the model in order. `routes` is 2 where every stage has a
/// second copy (DualPipe): copy c of stage s has the index c·stages + s, and the microbatches are halved among
/// copies.
struct Placement {
  int ranks = 1;
  int stages = 1;
  int routes = 1;
  std::vector<int> rank_of;  // of each stage, and of each second copy

  int route_of(int stage) const { return stage / stages; }
  bool is_first(int stage) const { return stage % stages == 0; }
  bool is_last(int stage) const { return stage % stages == stages - 1; }
  /// The stages of a rank, in increasing order; its chunks are counted in this order.
  std::vector<int> stages_of(int rank) const;
  /// Microbatches m with first ≤ m < last pass through the stage.
  std::pair<int, int> microbatches_of(int stage, int microbatches) const {
    const int route = route_of(stage);
    return {microbatches * route / routes, microbatches * (route + 1) / routes};
  }
  bool operator==(const Placement&) const = default;
};

/// Stage s on rank s mod ranks, `chunks` stages a rank.
Placement loop_placement(int ranks, int chunks = 1);
/// Two stages a rank: r and 2·ranks − 1 − r.
Placement v_placement(int ranks);
/// One stage a rank and a second copy of it on the mirrored rank: stage s on rank s, its copy on ranks − 1 − s.
Placement two_way_placement(int ranks);

struct Schedule {
  std::string name;
  Placement placement;
  int microbatches = 1;
  std::vector<std::vector<Action>> order;  // of each rank
  bool operator==(const Schedule&) const = default;
};

/// The one dependency function: what must have ended, on whichever rank, before `what` may run. In terms of F, I
/// and W (a B stands for its I and its W): F of the stage before; I of the stage after and the own F; W its own I.
std::vector<Compute> needs(const Placement& placement, const Compute& what);

/// One microbatch forward through all stages, each once.
Schedule forward_only(const Placement& placement);

}  // namespace heddle::schedule
