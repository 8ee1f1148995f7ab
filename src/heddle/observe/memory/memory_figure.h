// Memory over a step as a figure of a page: the kinds on top of one another, the peak marked and explained.
#pragma once

#include <optional>
#include <string>

#include "heddle/observe/charts/svg_chart.h"
#include "heddle/simulate/memory_log.h"

namespace heddle::observe {

struct MemoryView {
  std::string title;       // "rank 3, step 12, measured"
  std::string time_label;  // meaning of the time
  simulate::MemoryCurve curve;
  std::vector<Level> levels;  // limits that it is compared with: the arena, the device
};

/// Returns the figure with the sentences below it; "" of nothing.
std::string memory_figure(const MemoryView& view);

/// The largest values at the peak, and which microbatches they belong to, as a table.
std::string peak_values_table(const MemoryView& view);

}  // namespace heddle::observe
