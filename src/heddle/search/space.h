// The folded space of training plans for a model on so many devices. Attention's tp × cp × dp and the experts' etp
// × ep × edp divide a stage's ranks independently, by any divisors. Further axes: stages and chunks, schedule,
// microbatch, recomputation and offload of activations.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "heddle/cost/routing.h"
#include "heddle/search/estimate.h"

namespace heddle::search {

/// Values that the search may choose from; an empty list leaves an axis free.
struct Restriction {
  std::vector<int> tp, cp, dp, pp, vpp, ep, etp, microbatch;
  std::vector<Pipeline> schedule;      // empty: those that no other one makes useless
  std::vector<std::string> recompute;  // words of `recompute_choices`
  std::vector<int> offload;            // 0, 1
  bool offload_beside_pairs = true;    // false: schedules whose passes stand in pairs keep activations
  std::vector<int> uneven;             // 0: stages of equal layers only (embedding and head may stand for one each)
  std::vector<int> by_stage;           // 0: recomputation and offload the same on all stages
  std::vector<std::string> replicas;   // values of moe.replicas; empty: off and auto, of Heddle alone
  std::vector<std::string> context;    // words of parallel.context but gather; empty: the job's own
  bool residencies = false;            // homes of state, weights and gradients are searched too: Heddle alone
  ResidencyWords residency;
  bool shardings = false;  // gradients and weights may be cut among copies: Heddle alone
  ShardingWords sharding;

  /// "tp=1,2": the values of an axis, in place of those it had. ConfigError naming what is wrong, what is accepted
  /// and the nearest name.
  void set(std::string_view words);
  /// Stages of equal layers only.
  bool even() const { return uneven == std::vector<int>{0}; }
  bool alike() const { return by_stage == std::vector<int>{0}; }
};

/// Evenness with which routing spreads rows.
using cost::Routing;

/// Named levels of recomputation that the model can use, from nothing to everything.
struct RecomputeChoice {
  std::string name;
  Recompute recompute;
};
std::vector<RecomputeChoice> recompute_choices(const model::Shape& shape);

/// Divisors in increasing order.
std::vector<int> divisors(int n);
/// Sequences that a microbatch may have, at most so many.
std::vector<std::string> microbatch_words(int64_t global_batch, int64_t most);

/// Common part of all jobs of a search, and what it may vary.
struct Space {
  Job job;  // shape, device, software, precision, sequence, global batch; the rest is overwritten
  int devices = 1;
  double fewest_tokens = 256;  // per microbatch and context rank: less than a tile of rows is no use
  Restriction restriction;
  Routing routing;
};

/// Layouts that share their block prices: everything but stages, schedule and recomputation.
struct Family {
  int tp = 1, cp = 1, ep = 1, etp = 1, microbatch = 1;
  bool operator==(const Family&) const = default;
};

/// Returns all families, in a fixed order. ConfigError where the restriction leaves none, saying which axis emptied
/// it.
std::vector<Family> families(const Space& space);

/// Each (pp, vpp, schedule) that goes with the family, in a fixed order: `job` is set to it and `visit` called.
/// Recomputation and offload are left to the caller.
void for_each_layout(const Space& space, const Family& family, Job& job, const std::function<void()>& visit);

/// Options that a plan could have and the search leaves out.
const std::vector<std::string>& not_considered();

}  // namespace heddle::search
