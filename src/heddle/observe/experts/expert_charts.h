// What the report shows of experts by layer and step: heat maps of their loads, and of the rows of the ranks that
// share them before and after copies; what copies came to.
#pragma once

#include <string>
#include <vector>

#include "heddle/observe/run_figures.h"

namespace heddle::observe {

/// `layers`: a name for each row of figures of layers; else they are numbered. "" where no step has any.
std::string load_maps(const std::vector<StepMetrics>& steps, const std::vector<std::string>& layers);
std::string copies_panels(const std::vector<StepMetrics>& steps, const RunFigures& figures,
                          const std::vector<std::string>& layers);

}  // namespace heddle::observe
