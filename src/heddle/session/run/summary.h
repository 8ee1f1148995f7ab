// The result of a run. Services fill in their parts while it trains.
#pragma once

#include <cstdint>
#include <string>

#include "heddle/observe/run_figures.h"

namespace heddle::session {

struct RunSummary {
  std::string folder, checkpoint, report;  // report: "" when the disk refused it
  std::string trace;                       // path of the Perfetto trace; "" where none was asked for or written
  std::string weights_digest;              // the last that was taken (train/audit/weight_digest.h)
  int64_t first_step = 0, steps = 0;       // steps done before this process, and in all
  bool interrupted = false;
  std::string slow_ranks, slow_links;   // slow ones at the end, as JSON; "": ranks were not watched
  double length_s = 0;                  // length of a run by the clock, else 0
  int64_t tokens = 0, text_tokens = 0;  // trained on, and in the training text
  observe::RunFigures figures;          // all steps in the folder, as the report has them
};

}  // namespace heddle::session
