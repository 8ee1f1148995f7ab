// Warnings about what the run's text lacks, a line each.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "heddle/config/run_config.h"
#include "heddle/data/dataset.h"

namespace heddle::session {

/// Beyond so many readings of the same text a further one teaches little (Muennighoff et al., arXiv 2305.16264).
inline constexpr double kUsefulEpochs = 4;

/// Readings of the whole text by a run after so many steps.
double epochs_of(const config::RunConfig& config, const data::Dataset& dataset, int64_t steps);

/// Notes on the text before the run: nothing held out, or too little for a sequence; more readings than teach,
/// where the number of steps is known.
std::vector<std::string> data_notes(const config::RunConfig& config, const data::Dataset& dataset);

/// The note on readings for a run by the clock: once, on the step with which they become too many; else none.
std::optional<std::string> epoch_note(const config::RunConfig& config, const data::Dataset& dataset, int64_t step);

}  // namespace heddle::session
