// The memory of a configuration's step as one HTML file that needs nothing else.
#pragma once

#include <string>
#include <vector>

#include "heddle/observe/memory/memory_figure.h"

namespace heddle::observe {

struct MemoryPage {
  std::string title, subtitle;
  std::vector<MemoryView> views;  // device, host
  std::string figures_json;       // the same as numbers
};
std::string memory_page(const MemoryPage& page);

}  // namespace heddle::observe
