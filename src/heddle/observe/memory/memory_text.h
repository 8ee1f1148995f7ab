// Memory over a step as letters, time from left to right:
//
//              ▼ 405.9 MiB, at 61 % of the step
//   406 MiB │  aff ffg
//           │ baffbaffg ag
//           │OOOOOOOOOOOOOOOOOO
//         0 └──────────────────
//
// Each kind has a letter. Letters of what persists are capitals. Where colours are shown, kinds have colours, too.
#pragma once

#include <string>

#include "heddle/observe/terminal/terminal.h"
#include "heddle/simulate/memory_log.h"

namespace heddle::observe {

/// The picture, a table of the kinds, and the peak in sentences; at most `columns` wide (at least 40).
std::string memory_text(const simulate::MemoryCurve& curve, int columns, const Terminal& terminal);

}  // namespace heddle::observe
