// What a run has come to: each figure worked out once, from the run's steps, and written in one way. The terminal,
// `--json` and the report take them here, so that one value is never told as two.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "heddle/observe/step_metrics.h"

namespace heddle::observe {

/// What migration of experts came to in a run. Each key is a figure of the steps that looked at it
/// (StepMetrics::extra).
struct MoveSums {
  double experts = 0, bytes = 0;             // that moved, with so much state
  double made = 0, even = 0, not_worth = 0;  // looks at a layer that ended so
  struct Field {
    const char* key;
    double MoveSums::*value;
  };
  static constexpr Field kFields[] = {{"experts_moved", &MoveSums::experts},
                                      {"experts_moved_bytes", &MoveSums::bytes},
                                      {"moves_made", &MoveSums::made},
                                      {"moves_even", &MoveSums::even},
                                      {"moves_not_worth", &MoveSums::not_worth}};
};

struct RunFigures {
  int64_t step = 0;  // the last one; 0: there is none
  std::optional<double> loss;
  std::optional<double> recent_loss;  // mean of the last `recent_steps`, of those that are numbers
  int64_t recent_steps = 0;
  std::optional<double> held_out_loss;
  int64_t held_out_step = 0;
  std::optional<double> tokens;  // seen
  std::optional<double> step_s;  // median of all steps; likewise the two below
  std::optional<double> tokens_per_s;
  std::optional<double> flops_per_s;
  std::optional<double> trained_s;  // in steps
  std::optional<double> elapsed_s;  // with looks, checkpoints and reports, of this process
  // Of the arena of the rank that holds most: what it took, what it was said to take, by how much it grew beyond.
  std::optional<double> reserved_bytes, predicted_reserved_bytes, grown_bytes;
  std::optional<CopyFigures> copies;  // of hot experts, in all steps; empty of a run that had none to choose
  std::optional<MoveSums> moves;      // of experts; empty of a run that never looked
};

/// Of the steps alone: what only the run knows stays empty.
RunFigures figures_of(const std::vector<StepMetrics>& steps);

/// What copies came to: as names and values, and in one line. Nothing of a run without.
std::vector<std::pair<std::string, std::string>> copies_facts(const RunFigures& figures);
std::string copies_line(const RunFigures& figures);
/// Likewise of experts that moved.
std::vector<std::pair<std::string, std::string>> moves_facts(const RunFigures& figures);
std::string moves_line(const RunFigures& figures);

std::string loss_text(double nats_per_token);
std::string tokens_rate_text(double tokens_per_s);
std::string flops_rate_text(double flops_per_s);

/// The figures as JSON, numbers as they are: for scripts that read a page.
std::string json_of(const RunFigures& figures);

}  // namespace heddle::observe
