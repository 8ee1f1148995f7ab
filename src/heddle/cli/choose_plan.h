// heddle train --mode: the plan for a run, chosen by simulating candidates on the profile of this machine. All of
// them train on the same global batch.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "heddle/cli/machine.h"

namespace heddle::cli {

/// What is sought: the shortest step; the least memory within kMostSlower of it; the least exposed communication
/// within the same.
enum class PlanMode : uint8_t { automatic, save_memory, overlap };
inline constexpr double kMostSlower = 1.3;
/// "auto", "save-memory" or "overlap"; ConfigError for another word.
PlanMode plan_mode_named(const std::string& name);

struct Candidate {
  std::vector<std::string> set;  // "mesh.tp=2", …: what differs from the configuration
  double step_us = 0, exposed_us = 0;
  int64_t reserved_bytes = 0;
  std::string refusal;  // why it does not fit; empty: it does
};

struct PlanChoice {
  Candidate chosen;
  Candidate configured;  // as the configuration stands
  int simulated = 0, refused = 0;
};

/// The candidate that `mode` seeks among those that fit. Null: none fits.
const Candidate* best_of(const std::vector<Candidate>& candidates, PlanMode mode);

/// Layouts of the configured number of ranks, microbatches, schedules, recompute words and dispatchers, at most
/// `seconds` long. What `set` sets stays as it is. ConfigError when none fits the memory limit: with the tensors to
/// blame and the limit that would do.
PlanChoice choose_plan(const std::string& path, const std::vector<std::string>& set,
                       const cost::MachineProfile& profile, PlanMode mode, double seconds);

}  // namespace heddle::cli
