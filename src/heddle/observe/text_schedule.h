// A schedule drawn with letters, one line a rank, time from left to right:
//
//   0 │F0─F1─F2─      I0─W0─F3─I1─W1─I2─W2─I3─W3─
//   1 │   F0─F1─   I0─F2─I1─W0─F3─I2─W1─I3─W2─W3─
//   2 │      F0─I0─F1─I1─F2─I2─W0─F3─I3─W1─W2─W3─
//     └──────────────────────────────────────────
//      0              5              10
//
// A fused pair stands as two halves. Where colours are shown, kinds have colours and chunks shades, and the letters
// of narrow actions are left out.
#pragma once

#include <string>

#include "heddle/observe/progress.h"
#include "heddle/schedule/timing.h"

namespace heddle::observe {

/// Returns the drawing, at most `columns` wide (at least 40), at most 64 ranks; every line ends in a newline.
std::string text_schedule(const schedule::Schedule& schedule, const schedule::Timing& timing, int columns,
                          const Terminal& terminal);

}  // namespace heddle::observe
