// The end of a paced bench: its figures, and whether the cores were free enough for them to say anything.
#pragma once

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string>

#include "tests/support/paced_time.h"

namespace heddle::bench {

/// Prints what was found as JSON, or its text; `use`: of the cores, in the busiest step. Returns the exit status.
inline int tell_paced(bool as_json, nlohmann::ordered_json found, const std::string& text, double use,
                      const char* remedy = "") {
  const bool believable = use <= kMostPacedUse;
  found["processor_use"] = use;
  found["believable"] = believable;
  if (as_json) {
    fmt::print("{}\n", found.dump());
  } else {
    fmt::print("{}busiest step: {:.0f} % of the cores{}{}\n", text, 100 * use,
               believable ? "" : "; above 70 % the figures say nothing", believable ? "" : remedy);
  }
  return believable ? 0 : 1;
}

}  // namespace heddle::bench
