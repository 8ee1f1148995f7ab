// heddle train --mode: the plan for a run, chosen by simulating candidates on the profile of this machine. All of
// them train on the same global batch.
#pragma once

#include <functional>
#include <set>
#include <string>
#include <vector>

#include "heddle/planner/machine.h"

namespace heddle::planner {

/// The aim: the shortest step; the least memory within kMostSlower of it; the least exposed communication within
/// the same.
enum class PlanMode : uint8_t { automatic, save_memory, overlap };
inline constexpr double kMostSlower = 1.3;
/// "auto", "save-memory" or "overlap"; ConfigError for another word.
PlanMode plan_mode_named(const std::string& name);

struct Candidate {
  std::vector<std::string> set;  // "mesh.tp=2", …: what differs from the configuration
  double step_us = 0, exposed_us = 0;
  int64_t reserved_bytes = 0;
  std::string refusal;  // why it does not fit; empty: it does
  bool fits() const { return refusal.empty(); }
};

struct PlanChoice {
  Candidate chosen;
  Candidate configured;        // as the configuration stands; with base_settings where it is no plan
  std::vector<Candidate> all;  // the simulated ones
  int refused = 0;             // number of those that did not fit
};

/// The candidate that `mode` seeks among those that fit. Of those within 0.1 % of the best it is the one of least
/// memory, then of fewest settings. Null: none fits.
const Candidate* best_of(const std::vector<Candidate>& candidates, PlanMode mode);

/// Predicts a configuration, with its arena `tried` or not; ir::OutOfMemory where it does not fit, ConfigError
/// where it is no plan.
using PredictFn = std::function<ConfigPrediction(const config::RunConfig&, bool tried)>;
/// Plans worth simulating, as settings, the most promising first. `fixed`: keys that stay as they are.
using Propose = std::function<std::vector<std::vector<std::string>>(const config::RunConfig&,
                                                                    const std::set<std::string>& fixed)>;
/// Nothing, or the settings without which the configuration is no plan: "train.microbatch=1" where the configured
/// one does not divide a data rank's share of the batch. ConfigError where that is not all that is wrong.
std::vector<std::string> base_settings(const std::string& path, const std::vector<std::string>& set);

/// The plan that these settings make of the configuration. ConfigError where they make none.
Candidate predicted(const std::string& path, const std::vector<std::string>& set,
                    const std::vector<std::string>& more, const PredictFn& predict, bool tried = true);

/// Chooses among the plans proposed, at most `seconds` long. The first few that are too large drop what
/// memory.budget chooses. Of the best few it tries each value of what a plan sets beside (Switch::planned). Of the
/// plan found it drops each setting that makes it worse. Keys in `set` stay as they are. ConfigError when none fits
/// the memory limit: with the tensors to blame, the limit that would do and what a step would then take.
PlanChoice choose_plan(const std::string& path, const std::vector<std::string>& set, const PredictFn& predict,
                       const Propose& propose, PlanMode mode, double seconds);

/// A remedy for a configuration that does not fit: the settings with which it does at the least price in time, with
/// that price; else the memory that it needs. One line.
std::string cheapest_remedy(const std::string& path, const std::vector<std::string>& set, const PredictFn& predict,
                            const Propose& propose, double seconds);

}  // namespace heddle::planner
