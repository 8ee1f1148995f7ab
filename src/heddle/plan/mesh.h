// The ranks of a job as a mesh, and the groups in which they communicate.
//
// World = tp × cp × dp × pp. A stage's W = tp·cp·dp ranks are folded twice, independently. The fold of attention is
// tp × cp × dp, that of the experts etp × ep × edp (edp = W ÷ (etp·ep)). A fold is written with its fastest axis
// first: "tp-cp-dp-pp" puts tensor-parallel neighbours on adjacent ranks.
#pragma once

#include <string>
#include <vector>

#include "heddle/ir/axes.h"

namespace heddle::plan {

struct Degrees {
  int tp = 1, cp = 1, dp = 1, pp = 1, ep = 1, etp = 1;
  std::string order = "tp-cp-dp-pp";
  std::string expert_order = "etp-ep-edp";
  int stage_ranks() const { return tp * cp * dp; }
  int ranks() const { return stage_ranks() * pp; }
  int edp() const { return stage_ranks() / (ep * etp); }
  bool operator==(const Degrees&) const = default;
};

/// "8 ranks: tp 2 × dp 2 × pp 2, ep 2": the axes that are longer than one.
std::string text_of(const Degrees& degrees);

class Mesh {
 public:
  /// ConfigError when a degree is below one, etp × ep does not divide tp × cp × dp, or an order misses an axis.
  explicit Mesh(const Degrees& degrees);

  const Degrees& degrees() const { return degrees_; }
  int ranks() const { return degrees_.ranks(); }
  const ir::Coordinates& at(int rank) const { return at_.at(static_cast<size_t>(rank)); }

  /// The ranks with which `rank` communicates in a group, itself among them, in the group's order:
  ///   `tp`, `cp`, `pp`, `etp`, `edp`  One axis.
  ///   `experts`   etp × ep: ranks that share the experts, etp fastest.
  ///   `dense`     cp × dp: copies of a weight that tp cuts.
  ///   `sequence`  tp × cp: ranks that share the tokens of a sequence.
  ///   `stage`     All of a stage: copies of a weight that nothing cuts.
  ///   `world`     All.
  /// Each cut into runs of N neighbours: "NAME_inN" the run of `rank`, "NAME_acrossN" the rank of the same place in
  /// each run, "NAME_byN" all, those of the same place beside each other.
  /// "NAME@a+b": those of pipeline ranks a and b, in this order, that differ in nothing but what NAME lets differ;
  /// empty for a rank of another pipeline rank. InternalError for any other name.
  std::vector<int> group(const std::string& name, int rank) const;
  static const std::vector<std::string>& group_names();

 private:
  std::vector<int> by_runs(const std::string& name, size_t at, int rank) const;

  Degrees degrees_;
  std::vector<ir::Coordinates> at_;
};

}  // namespace heddle::plan
