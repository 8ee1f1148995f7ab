// Measurements of each rank's own step, gathered on all of them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "heddle/device/stream.h"
#include "heddle/train/step/result.h"

namespace heddle::train {

/// A rank's measurements of its own step.
struct RankFigures {
  double seconds = 0;
  int64_t peak_live_bytes = 0, reserved_bytes = 0, grown_bytes = 0;  // bytes of its arena
  RankWork work;
  double max_logit = 0;  // of model::StatisticKind::largest
};

/// The work on the compute stream of a step.
RankWork work_of(const device::StreamTimes& times);

/// Puts a rank's behind its row: a place for each rank, zeros in those of the others.
void append(std::vector<double>& row, const RankFigures& own, int rank, int ranks);
/// Takes the figures at the end of the rows' sum: the worst of those that the result has once.
void take_figures(StepResult& result, std::span<const double> figures);

}  // namespace heddle::train
