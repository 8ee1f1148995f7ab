// The communication kernels of the experts' exchange, by file.
#pragma once

#include "heddle/comm/collectives.h"

namespace heddle::device {
struct RowWork;
}

namespace heddle::comm {

const std::vector<Collective>& count_kernels();     // share_counts, counts_to_host
const std::vector<Collective>& dispatch_kernels();  // dispatch, collect_dgrad
const std::vector<Collective>& collect_kernels();   // collect, dispatch_dgrad

// The same on the memory of a device.
const std::vector<Collective>& device_count_kernels();
const std::vector<Collective>& device_exchange_kernels();

/// What the device of the call does with rows; InternalError when it does nothing.
const device::RowWork& device_work(const device::KernelCall& call);

}  // namespace heddle::comm
