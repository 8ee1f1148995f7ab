// Heat maps of the report, by layer and step: loads of experts, and rows of the ranks that share experts before and
// after copies.
#pragma once

#include <string>
#include <vector>

#include "heddle/observe/step_metrics.h"

namespace heddle::observe {

/// `layers`: a name for each row of figures of layers; else they are numbered. `note` stands beside the titles. ""
/// where no step has any.
std::string load_maps(const std::vector<StepMetrics>& steps, const std::vector<std::string>& layers,
                      const std::string& note);
std::string rank_maps(const std::vector<StepMetrics>& steps, const std::vector<std::string>& layers);

}  // namespace heddle::observe
