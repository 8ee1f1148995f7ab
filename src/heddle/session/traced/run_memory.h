// The memory of a traced step on the rank that holds most: as measured, and as predicted from the program with the
// times that its ops took. Where they differ, experts received other numbers of rows.
#pragma once

#include <vector>

#include "heddle/observe/memory/memory_figure.h"
#include "heddle/session/traced/run_trace.h"
#include "heddle/simulate/memory_log.h"

namespace heddle::session {

/// Returns the views to rank 0, device and host, each measured and predicted. All ranks call it together, with what
/// each has logged of the step. None where the rank is too late in the job to be traced.
std::vector<observe::MemoryView> memory_views(train::Trainer& trainer, const simulate::MemoryLog& log,
                                              const std::vector<RankSpans>& ranks, int fullest_rank, int64_t step);

}  // namespace heddle::session
