// The number of threads that the CPU kernels of the calling thread take.
#pragma once

#include <omp.h>

namespace heddle::device {

inline void set_kernel_team(int threads) { omp_set_num_threads(threads); }

}  // namespace heddle::device
