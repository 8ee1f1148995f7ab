// What the run's text will not do for it: told, a line each.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "heddle/config/run_config.h"
#include "heddle/data/dataset.h"

namespace heddle::session {

/// Beyond so many readings of the same text a further one teaches little (Muennighoff et al., arXiv 2305.16264).
inline constexpr double kUsefulEpochs = 4;

/// How often a run has read the whole text after so many steps.
double epochs_of(const config::RunConfig& config, const data::Dataset& dataset, int64_t steps);

/// Of the text as a run finds it: nothing held out, or too little for a sequence; more readings than teach, where
/// the number of steps is known.
std::vector<std::string> data_notes(const config::RunConfig& config, const data::Dataset& dataset);

/// The same of readings, of a run by the clock: once, on the step with which they become too many; else nothing.
std::optional<std::string> epoch_note(const config::RunConfig& config, const data::Dataset& dataset, int64_t step);

}  // namespace heddle::session
