// The cards at the top of a run's report: its figures with a verdict.
#pragma once

#include <string>

#include "heddle/observe/report.h"

namespace heddle::observe {

/// Returns the cards; "" where there is nothing to show.
std::string cards_html(const ReportData& data);

}  // namespace heddle::observe
