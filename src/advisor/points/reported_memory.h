// The peak that a run reports: what its figure of memory counts, and what the run itself proves.
#pragma once

#include "advisor/points/point_job.h"

namespace heddle::advisor {

/// Changes the estimate's peak to what the row's software reports. A figure of the first step has the optimizer's
/// moments or the activations, not both. No run of which there is a row needed more than its device has.
void count_as_reported(const PointJob& point, Estimate& estimate);

/// The most that a run on the job's device can report.
double most_reported(const Job& job);

}  // namespace heddle::advisor
