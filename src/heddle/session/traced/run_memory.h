// The memory of a traced step of the rank that holds most: as it was, and as the program foretells it over the
// times that its ops took. Where they differ, experts received other numbers of rows.
#pragma once

#include <string>
#include <vector>

#include "heddle/observe/memory/memory_figure.h"
#include "heddle/session/traced/run_trace.h"
#include "heddle/simulate/memory_log.h"

namespace heddle::session {

/// All ranks call it together, with what each has logged of the step; rank 0 gets the views, device and host, each
/// measured and foretold. None where the rank is too late in the job to be traced.
std::vector<observe::MemoryView> memory_views(train::Trainer& trainer, const simulate::MemoryLog& log,
                                              const std::vector<RankSpans>& ranks, int fullest_rank, int64_t step);

}  // namespace heddle::session
