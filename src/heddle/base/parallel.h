// Work on several threads that ends before the call returns. The kernels' loops are OpenMP's; this is for the rest.
#pragma once

#include <cstdint>
#include <functional>

namespace heddle {

/// Runs work(0) to work(threads - 1) at the same time, so that they may wait for one another; work(0) is the
/// caller's. All end, then the first error is passed on. What waits for one that failed must learn of it by itself.
void on_threads(int threads, const std::function<void(int thread)>& work);

/// Runs work(0) to work(count - 1) in no order, as many at a time as there are cores. All are run, then the error
/// of the first in order is passed on.
void for_each_index(int64_t count, const std::function<void(int64_t index)>& work);

/// One a core that this machine has.
int hardware_threads();

}  // namespace heddle
