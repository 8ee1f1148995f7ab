// How many threads the kernels of the CPU take that the calling thread runs.
#pragma once

#include <omp.h>

namespace heddle::device {

inline void set_kernel_team(int threads) { omp_set_num_threads(threads); }

}  // namespace heddle::device
